"""Which client of a run holds which labels, from the run's spec and its data set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedskew import measure, rng
from fedskew.data import datasets
from fedskew.data.partition.parts import Parts
from fedskew.run import Run
from fedskew.sides import shared_set, split


@dataclass(frozen=True)
class Holdings:
    """Label counts (N, C) of a run's clients, shared examples included, and the classes' names."""

    counts: NDArray[np.int64]
    classes: tuple[str, ...]


def holdings_of(run: Run) -> Holdings:
    """The clients as training meets them; no pixel is read for it."""
    data = datasets.load_labels(run.data)
    parts = split(run, data)
    shared = shared_set(run, data, parts)
    if run.share is not None and shared is not None:
        streams = (rng.stream(run.seed, "share", k) for k in range(len(parts)))
        parts = Parts.of(run.share.merged(part, shared, stream) for part, stream in zip(parts, streams, strict=True))
    return Holdings(measure.counts(data.y, parts, len(data.classes)), data.classes)
