"""What decides a run's numbers beside its spec: the data, its split into clients, and the machine."""

from __future__ import annotations

import hashlib
import platform
import re
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from fedskew import __version__
from fedskew.data import datasets
from fedskew.data.dataset import Dataset
from fedskew.data.partition import Nodes
from fedskew.engine.choose import Engine, Precision
from fedskew.laboratory import find_device
from fedskew.run import Run
from fedskew.sides import shared_set, split
from fedskew.tree import Tree


def loaded(run: Run, data: Dataset | None) -> Dataset:
    """The data set given, else the one that the run names."""
    return datasets.load(run.data) if data is None else data


def fingerprint(run: Run, data: Dataset, initial: Tree | None = None) -> dict[str, str]:
    """sha256 of the data, its split (which depends on a split file and on numpy's streams), G, and given weights."""
    if isinstance(run.partition, Nodes):  # clients hold what nobody here can see
        return {"data": data.fingerprint()} | _start(initial)
    parts = split(run, data)
    digest = hashlib.sha256(parts.sizes.data)
    digest.update(np.ascontiguousarray(parts.flat, np.int64).data)
    prints = {"data": data.fingerprint(), "partition": digest.hexdigest()}
    if (shared := shared_set(run, data, parts)) is not None:
        prints["shared"] = hashlib.sha256(np.ascontiguousarray(shared, np.int64).data).hexdigest()
    return prints | _start(initial)


def _start(initial: Tree | None) -> dict[str, str]:
    if initial is None:
        return {}
    digest = hashlib.sha256()
    for name in sorted(initial):
        digest.update(name.encode())
        digest.update(initial[name].cpu().flatten().contiguous().view(torch.uint8).numpy().data)
    return {"start": digest.hexdigest()}


@dataclass(frozen=True)
class How:
    """The arguments of `train` that do not belong to the spec."""

    device: str
    engine: Engine
    precision: Precision


def environment(how: How) -> dict[str, str | int]:
    """Where rows are bit-identical: the same versions, engine, device and, on a CPU, threads."""
    place = find_device(how.device)
    versions: dict[str, str | int] = {name: version(name) for name in ("torch", "numpy")}
    versions |= {"fedskew": __version__, "engine": how.engine, "precision": how.precision}
    if place.type == "cuda":
        return versions | {"device": f"cuda ({torch.cuda.get_device_name(place)})"}
    cpu = f"{place.type} ({_processor()}, {torch.backends.cpu.get_cpu_capability()})"
    return versions | {"device": cpu, "threads": torch.get_num_threads()}


@cache
def _processor() -> str:
    """Its name: MKL adds in another order on another maker's, with the same instructions."""
    told = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.+)$", told.read_text(), re.MULTILINE) if told.exists() else []
    return names[0] if names else platform.processor() or platform.machine()
