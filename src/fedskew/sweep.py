"""Many runs into one store: those of one shape train together, finished ones are not repeated, stopped ones go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fedskew.data import datasets
from fedskew.data.dataset import Dataset
from fedskew.experiment import SHAPE, Row
from fedskew.run import Run
from fedskew.store import Store

__all__ = ["SHAPE", "Group", "accuracies", "plan", "train"]


@dataclass(frozen=True)
class Group:
    """Runs that train as one computation, with their ids in the store."""

    runs: list[Run]
    ids: list[str]
    left: int  # rounds that are still to be trained, of all runs
    until: int | None = None  # the round that they are brought to, if not their last


def plan(
    store: Store, runs: Sequence[Run], at_once: int | None = None, until: int | None = None
) -> tuple[list[str], list[Group]]:
    """The id of every run, new ones written down, and what is left to train, in groups of `at_once` runs at most.

    A run that the store already has (same spec, whatever its name) is not trained again. With `until` no run is brought
    further than that round. Raises before anything is trained if a run cannot be.
    """
    ids, groups, loaded = [], dict[tuple[Any, ...], Group](), dict[str, Dataset]()
    for run in runs:
        stored = store.same(run)
        if stored is None and run.data not in loaded:
            loaded[run.data] = datasets.load(run.data)
        id = store.create(run, loaded[run.data]) if stored is None else stored.id
        ids.append(id)
        left = min(run.rounds, until or run.rounds) - (stored.round if stored else 0)
        if stored is not None and (stored.over or (until is not None and left <= 0)):
            continue
        shape: tuple[Any, ...] = tuple(str(getattr(run, key)) for key in SHAPE)
        if at_once is not None:
            full = [part for part in groups if part[:-1] == shape and len(groups[part].ids) >= at_once]
            shape = (*shape, len(full))
        group = groups.get(shape, Group([], [], 0))
        if id not in group.ids:
            groups[shape] = Group([*group.runs, run], [*group.ids, id], group.left + left, until)
    return ids, list(groups.values())


def train(store: Store, groups: Sequence[Group], **how: Any) -> Iterator[tuple[str, Row]]:
    """Train the groups one after another, giving (id, row); `how` are the arguments of `Store.advance_together`."""
    for group in groups:
        yield from store.advance_together(group.ids, **how, until=group.until)


def accuracies(store: Store, id: str) -> list[tuple[int, float]]:
    """(round, accuracy) of every evaluation of a run."""
    return [(r["round"], r["accuracy"]) for r in store.records(id) if r["accuracy"] is not None]
