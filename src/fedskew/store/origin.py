"""What decides a run's numbers beside its spec: the data, its split into clients, and the machine."""

from __future__ import annotations

import hashlib
import platform
from importlib.metadata import version

import numpy as np
import torch

from fedskew.data import datasets
from fedskew.data.dataset import Dataset
from fedskew.experiment import Run, find_device, split


def loaded(run: Run, data: Dataset | None) -> Dataset:
    """The data set given, else the one that the run names."""
    return datasets.load(run.data) if data is None else data


def fingerprint(run: Run, data: Dataset) -> dict[str, str]:
    """sha256 of the data and of the split, which also depends on a split file and on numpy's streams."""
    _, _, parts = split(run, data)
    digest = hashlib.sha256(np.fromiter(map(len, parts), np.int64).tobytes())
    for part in parts:
        digest.update(np.ascontiguousarray(part, np.int64).data)
    return {"data": data.fingerprint(), "partition": digest.hexdigest()}


def environment(device: str) -> dict[str, str | int]:
    """Where rows are bit-identical: the same versions, device and, on a CPU, threads and instructions."""
    place = find_device(device)
    versions: dict[str, str | int] = {package: version(package) for package in ("fedskew", "torch", "numpy")}
    if place.type == "cuda":
        return versions | {"device": f"cuda ({torch.cuda.get_device_name(place)})"}
    cpu = f"{place.type} ({platform.machine()}, {torch.backends.cpu.get_cpu_capability()})"
    return versions | {"device": cpu, "threads": torch.get_num_threads()}
