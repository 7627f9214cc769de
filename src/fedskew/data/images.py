"""The official binary files of MNIST, Fashion-MNIST and CIFAR-10 as arrays."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedskew.data import verify
from fedskew.data.dataset import Dataset
from fedskew.data.sources import Source

_CIFAR_ROW = 1 + 3 * 32 * 32  # one label byte, then the red, green and blue planes


def mnist(folder: Path, source: Source) -> Dataset:
    """Images and labels of the four gzipped idx files."""
    x, y, x_test, y_test = (_idx(verify.read(folder, file, source)) for file in source.files)
    return Dataset(
        name=source.name,
        x=x[:, None],
        y=y.astype(np.int64),
        x_test=x_test[:, None],
        y_test=y_test.astype(np.int64),
        classes=source.classes,
        transform="scale",
    )


def mnist_labels(folder: Path, source: Source) -> NDArray[np.int64]:
    """The training labels alone."""
    return _idx(verify.read(folder, source.files[1], source)).astype(np.int64)


def cifar10(folder: Path, source: Source) -> Dataset:
    """Images and labels of the five training batches and the test batch, in their official order."""
    *batches, test = (_batch(verify.read(folder, file, source)) for file in source.files)
    return Dataset(
        name=source.name,
        x=np.concatenate([batch[:, 1:] for batch in batches]).reshape(-1, 3, 32, 32),
        y=np.concatenate([batch[:, 0] for batch in batches]).astype(np.int64),
        x_test=test[:, 1:].reshape(-1, 3, 32, 32),
        y_test=test[:, 0].astype(np.int64),
        classes=source.classes,
        transform="crop-flip",
    )


def cifar10_labels(folder: Path, source: Source) -> NDArray[np.int64]:
    """The training labels alone; they lie between the pixels, so the files are read and checked all the same."""
    batches = (_batch(verify.read(folder, file, source)) for file in source.files[:-1])
    return np.concatenate([batch[:, 0].astype(np.int64) for batch in batches])


def _batch(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8).reshape(-1, _CIFAR_ROW)


def _idx(data: bytes) -> NDArray[np.uint8]:
    """LeCun's idx format: the fourth byte is the number of axes, then their lengths, then unsigned bytes."""
    plain = gzip.decompress(data)
    shape = np.frombuffer(plain, ">i4", count=plain[3], offset=4)
    return np.frombuffer(plain, np.uint8, offset=4 + 4 * plain[3]).reshape(shape)
