"""Which client of a run holds which labels, from the keys of its spec that decide it, and its data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedskew import measure
from fedskew.data import datasets
from fedskew.sides import Division, merged, shared_set, split


@dataclass(frozen=True)
class Holdings:
    """Who holds what: counts with shared examples included, and all private data, from which EMD is measured."""

    counts: NDArray[np.int64]  # (N, C)
    population: NDArray[np.int64]  # (C,)
    classes: tuple[str, ...]

    @property
    def emd(self) -> NDArray[np.float64]:
        """Of each client that holds an example."""
        return measure.emd(self.counts[self.counts.any(axis=1)], self.population)


def holdings_of(spec: Mapping[str, Any]) -> Holdings:
    """The clients of a run's spec (`Run.spec()`, or as the store has it); no pixel is read for it."""
    data, division = datasets.load_labels(spec["data"]), Division.of(spec)
    parts = split(division, data)
    population = measure.population(data.y, parts, len(data.classes))
    held = merged(division, parts, shared_set(division, data, parts), range(len(parts)))
    return Holdings(measure.counts(data.y, held, len(data.classes)), population, data.classes)
