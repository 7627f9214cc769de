"""A labelled data set in memory, and where its examples came from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedskew.errors import FedskewError

Array = NDArray[Any]
Transform = Literal["none", "scale", "standardise", "crop-flip"]  # see data/transforms.py


@dataclass(frozen=True)
class Labels:
    """The half of a data set that partition and skew need: no pixel is read for it."""

    name: str
    y: NDArray[np.int64]  # (n,)
    classes: tuple[str, ...]
    groups: NDArray[np.int64] | None = None  # (n,) speaker, user, ... of each training example


@dataclass(frozen=True)
class Dataset:
    """Training and test examples. Images are uint8 (n, channels, height, width), features are float32."""

    name: str
    x: Array  # (n, ...)
    y: NDArray[np.int64]  # (n,)
    x_test: Array
    y_test: NDArray[np.int64]
    classes: tuple[str, ...]
    groups: NDArray[np.int64] | None = None
    transform: Transform = "scale"  # what happens to a batch on the device

    def __post_init__(self) -> None:
        if len(self.y) == 0:
            raise FedskewError(f"{self.name}: there are no training examples; at least one is needed")
        for part, x, y in (("training", self.x, self.y), ("test", self.x_test, self.y_test)):
            _check(f"{self.name}, {part} set", x, y, len(self.classes))
        if self.groups is not None and len(self.groups) != len(self.y):
            raise FedskewError(
                f"{self.name}: {len(self.groups)} groups for {len(self.y)} training examples; give one group each"
            )

    @property
    def labels(self) -> Labels:
        """What partition needs of it."""
        return Labels(self.name, self.y, self.classes, self.groups)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return tuple(self.x.shape[1:])

    def fingerprint(self) -> str:
        """A sha256 over every byte that training can see, so that a resumed run meets the same data."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        digest = hashlib.sha256()
        for a in (self.x, self.y, self.x_test, self.y_test):
            digest.update(f"{a.dtype.str}{a.shape}".encode())
            digest.update(np.ascontiguousarray(a).data)
        if self.groups is not None:
            digest.update(np.ascontiguousarray(self.groups).data)
        return digest.hexdigest()


def _check(what: str, x: Array, y: Array, classes: int) -> None:
    if len(x) != len(y):
        raise FedskewError(f"{what}: {len(x)} examples but {len(y)} labels; give one label an example")
    wrong = np.flatnonzero((y < 0) | (y >= classes))
    if wrong.size:
        i = int(wrong[0])
        raise FedskewError(f"{what}: label {y[i]} at index {i} is not in 0..{classes - 1}; mend or drop it")
    if x.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(x).all(axis=tuple(range(1, x.ndim))))
        if bad.size:
            raise FedskewError(f"{what}: example {int(bad[0])} has a NaN or infinite value; mend or drop it")
