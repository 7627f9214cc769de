"""Load a data set by its name or from an .npz file; every official file is checked before it is used."""

from __future__ import annotations

import gzip
import importlib.util
import io
import math
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedskew.data import images, speech
from fedskew.data.arrays import from_arrays, read_npz, read_npz_labels, split_off
from fedskew.data.dataset import Dataset, Labels
from fedskew.data.sources import SOURCES, Source
from fedskew.data.tables import read_counts, read_split
from fedskew.errors import FedskewError

__all__ = ["data_folder", "example_bytes", "from_arrays", "load", "load_labels", "read_counts", "read_split"]


def data_folder() -> Path:
    """Where data sets lie: `FEDSKEW_DATA`, else the platform's folder for user data."""
    if chosen := os.environ.get("FEDSKEW_DATA"):
        return Path(chosen).expanduser()
    from platformdirs import user_data_dir

    return Path(user_data_dir("fedskew", appauthor=False))


def load(name_or_path: str, folder: Path | None = None) -> Dataset:
    """The data set of that name, or of the .npz file at that path."""
    if (path := _npz(name_or_path)) is not None:
        return read_npz(path)
    source, folder = _source(name_or_path), folder or data_folder()
    if source.name == "digits":
        return _digits(source)
    if source.name == "cifar10":
        return images.cifar10(folder, source)
    return speech.read(folder, source) if source.clips else images.mnist(folder, source)


def load_labels(name_or_path: str, folder: Path | None = None) -> Labels:
    """The labels and groups that `load` would give: no pixel is decoded, no sound is read, torch is not needed."""
    if (path := _npz(name_or_path)) is not None:
        return read_npz_labels(path)
    source, folder = _source(name_or_path), folder or data_folder()
    if source.name == "digits":
        return _digits(source).labels
    if source.clips:
        return speech.read_labels(folder, source)
    y = images.cifar10_labels if source.name == "cifar10" else images.mnist_labels
    return Labels(source.name, y(folder, source), source.classes)


def example_bytes(name_or_path: str) -> int:
    """What one training example with its label takes, as `load` would give it."""
    if (path := _npz(name_or_path)) is not None:
        data = read_npz(path)
        return int(data.x[:1].nbytes + data.y[:1].nbytes)
    source = _source(name_or_path)
    number = 4 if source.clips else 1  # features are float32, pixels are bytes
    return math.prod(source.shape) * number + 8


def _npz(name_or_path: str) -> Path | None:
    path = Path(name_or_path).expanduser()
    return path if path.suffix.lower() == ".npz" else None


def _source(name: str) -> Source:
    if name not in SOURCES:
        raise FedskewError(
            f"data set {name!r} is not known: choose one of {', '.join(SOURCES)}, or the path of an .npz file"
        )
    return SOURCES[name]


def _digits(source: Source) -> Dataset:
    """scikit-learn's 1,797 digits of 8 x 8; their levels 0..16 become bytes."""
    package = importlib.util.find_spec("sklearn")
    table = _digits_table((package and package.submodule_search_locations) or ())
    x = np.rint(table[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    y = table[:, -1].astype(np.int64)
    train, test = split_off(source.name, y)
    return Dataset(source.name, x[train], y[train], x[test], y[test], source.classes, transform="scale")


def _digits_table(places: Iterable[str]) -> NDArray[np.float64]:
    """(n, 65): pixels and class. The file is read where scikit-learn keeps it: importing scikit-learn takes 1.5 s."""
    for place in places:
        file = Path(place) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            return np.loadtxt(io.BytesIO(gzip.decompress(file.read_bytes())), delimiter=",")
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return np.column_stack([bunch.data, bunch.target])
