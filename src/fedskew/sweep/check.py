"""Everything that can be wrong with runs, found before the first of them is written down."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from fedskew.data import datasets
from fedskew.data.dataset import Dataset
from fedskew.engine import choose
from fedskew.laboratory import Laboratory, find_device
from fedskew.run import Run
from fedskew.store import Store, start


def check(store: Store, runs: Iterable[Run]) -> None:
    """Split the data, build the network and draw the first cohort of every run, as training would, on the CPU."""
    seen: dict[str, tuple[Dataset, Laboratory | None]] = {}
    for run in runs:
        data, beside = seen.get(run.data) or (datasets.load(run.data), None)
        lab = Laboratory.of(run, data, "cpu", "auto", "tf32", beside=beside)
        lab.sample(1)
        if (initial := start.read(run.start, store)) is not None:
            lab.given(initial)
        seen.setdefault(run.data, (data, lab))


def check_device(device: str, engine: str | None, precision: str | None, *, ours: bool) -> None:
    """Refuse what the device cannot do; of one that is not ours only its kind is known."""
    place = find_device(device) if ours else torch.device("cpu" if device == "cpu" else "cuda")
    choose.check(engine or "auto", precision or "tf32", place)
