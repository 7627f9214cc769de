"""What if the data were split so: the population, its EMD before and after sharing, and what sharing sends."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedskew import measure, sides
from fedskew.data import check, datasets
from fedskew.data.dataset import Labels
from fedskew.data.partition import KINDS, parse_partition
from fedskew.data.sources import SOURCES
from fedskew.errors import FedskewError
from fedskew.prepare import HOLDOUT, Share, held_out

MOST_CLIENTS = 1000
RECENT = 20.0  # seconds for which a look at the data folder is good

# The slider of each partition: its first value, its ends, whether it moves by factors, its step, what it means.
SLIDERS: dict[str, dict[str, Any]] = {
    "iid": {"label": "IID: every client like the whole"},
    "classes": {"label": "n classes a client", "name": "n", "value": 2, "low": 1, "high": 10, "step": 1},
    "shards": {"label": "n sorted shards a client", "name": "n", "value": 2, "low": 1, "high": 10, "step": 1},
    "dirichlet": {"label": "Dirichlet (Hsu)", "name": "α", "value": 0.5, "low": 0.01, "high": 100, "log": True},
    "dirichlet-by-class": {
        **{"label": "Dirichlet by class (Yurochkin)", "name": "α", "value": 0.5, "low": 0.05, "high": 100},
        "log": True,
    },
    "quantity": {"label": "uneven sizes", "name": "α", "value": 1.0, "low": 0.05, "high": 100, "log": True},
    "emd": {"label": "a chosen EMD (Zhao)", "name": "EMD", "value": 1.44, "low": 0, "high": 1.8, "step": 0.01},
    "groups": {"label": "natural groups (speakers, users)"},
}


@dataclass(frozen=True)
class Split:
    """A population and what sharing would do to it."""

    counts: NDArray[np.int64]  # (N, C), shared examples included
    classes: tuple[str, ...]
    before: NDArray[np.float64]  # (N,) EMD of each client's private data
    after: NDArray[np.float64] | None  # (N,) with its draw of the shared set
    facts: dict[str, Any]


def choices(named: list[str]) -> dict[str, Any]:
    """What the page offers: data sets that are here (and those that stored runs used), partitions, ranges."""
    here = _here(datasets.data_folder(), int(time.monotonic() / RECENT))
    kinds = [k.model_fields["kind"].default for k in KINDS]
    data = [*here, *(n for n in named if n not in SOURCES)]
    return {
        "data": data,
        "partitions": [{"kind": kind} | SLIDERS[kind] for kind in kinds if kind in SLIDERS],
        "clients": {"value": 10, "low": 2, "high": 200},
        "holdout": HOLDOUT,
    }


@lru_cache(maxsize=1)
def _here(folder: Path, when: int) -> list[str]:
    """The data sets in the folder; a look at one of spoken words lists thousands of files, and a slider asks often."""
    return [name for name, source in SOURCES.items() if name == "digits" or check.glance(source, folder) == "ok"]


def split(data: str, partition: str, clients: int, beta: float, alpha: float, seed: int) -> Split:
    """By the code that training uses, with its seed and its holdout; beta = 0 shares nothing and holds nothing out."""
    if clients > MOST_CLIENTS:
        raise FedskewError(f"clients = {clients}: the page draws up to {MOST_CLIENTS}; use fedskew partition")
    labels = labels_of(data)
    share = Share(beta=beta, alpha=alpha) if beta else None
    division = sides.Division(parse_partition(partition, clients), seed, held_out=held_out(None, share), share=share)
    return divided(division, labels, datasets.example_bytes(data) if share else 0)


def divided(division: sides.Division, labels: Labels, size: int) -> Split:
    """The population of a division; `size` is what one shared example takes in bytes."""
    number = len(labels.classes)
    parts = sides.split(division, labels)
    private = measure.counts(labels.y, parts, number)
    whole = private.sum(axis=0)
    before, after, counts = measure.emd(private, whole), None, private
    facts = {"partition": str(division.partition), "clients": len(parts), "examples": len(parts.flat)}
    facts |= measure.skew(private)
    shared = sides.shared_set(division, labels, parts)
    if shared is not None:
        counts = measure.counts(labels.y, sides.merged(division, parts, shared, range(len(parts))), number)
        after = measure.emd(counts, whole)
        facts["sharing"] = sides.sharing(division, labels.y, parts, shared, number, size)
    return Split(counts, labels.classes, before, after, facts)


@cache
def labels_of(data: str) -> Labels:
    """A data set's labels, read once."""
    return datasets.load_labels(data)
