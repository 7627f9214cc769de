"""Which runs train together, and which of them the store has already."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fedskew.experiment import SHAPE
from fedskew.rounds import Row
from fedskew.run import Run
from fedskew.store import Entry, Store

FILES = 500  # runs in training at most, unless more are asked for: each is a lock, and a process may open 1,024 files


@dataclass(frozen=True)
class Group:
    """Runs that train as one computation, with their ids in the store."""

    runs: list[Run]
    ids: list[str]
    left: int  # rounds that are still to be trained, of all runs
    until: int | None = None  # the round that they are brought to, if not their last


@dataclass(frozen=True)
class Outline:
    """What the store has of some runs, and what is left, in groups that train together. Nothing is written for it."""

    stored: dict[Run, Entry | None]  # every run once
    groups: list[list[Run]]
    until: int | None = None  # no run is brought further than this round

    def left(self, run: Run) -> int:
        """Rounds that are still to be trained."""
        return _left(run, self.stored[run], self.until)

    @property
    def rounds(self) -> int:
        """Those that are left of all runs."""
        return sum(self.left(run) for group in self.groups for run in group)

    @property
    def finished(self) -> int:
        """Runs that need no training."""
        return len(self.stored) - sum(map(len, self.groups))


def outline(
    store: Store, runs: Sequence[Run], at_once: int | None = None, hands: int = 1, until: int | None = None
) -> Outline:
    """Runs of one shape in groups of `at_once` at most, else of what each of so many hands would get of all."""
    once = list({_nameless(run): run for run in reversed(runs)}.values())[::-1]
    stored = dict(zip(once, store.alike(once), strict=True))
    # one that was interrupted after its last row is to be given its end
    short = (run for run, entry in stored.items() if entry is None or not entry.over)
    waiting = [run for run in short if until is None or _left(run, stored[run], until) > 0]
    most = at_once or max(1, min(math.ceil(len(waiting) / hands), FILES // hands))
    shapes: dict[tuple[str, ...], list[Run]] = {}
    for run in waiting:
        shapes.setdefault(tuple(str(getattr(run, key)) for key in SHAPE), []).append(run)
    groups = [alike[at : at + most] for alike in shapes.values() for at in range(0, len(alike), most)]
    return Outline(stored, groups, until)


def plan(
    store: Store, runs: Sequence[Run], at_once: int | None = None, hands: int = 1, until: int | None = None
) -> tuple[list[str], list[Group]]:
    """The id of every run, new ones written down, and what is left to train, in the groups of `outline`.

    A run that the store already has (same spec, whatever its name) is not trained again. With `until` no run is brought
    further than that round. Raises before anything is written or trained if a run cannot be.
    """
    known = outline(store, runs, at_once, hands, until)
    new = [run for run, entry in known.stored.items() if entry is None]
    ids = {_nameless(run): entry.id for run, entry in known.stored.items() if entry}
    ids |= zip(map(_nameless, new), store.create_all(new), strict=True) if new else {}
    groups = [Group(g, [ids[_nameless(run)] for run in g], sum(map(known.left, g)), until) for g in known.groups]
    return [ids[_nameless(run)] for run in runs], groups


def train(store: Store, groups: Sequence[Group], **how: Any) -> Iterator[tuple[str, Row]]:
    """Train the groups one after another, giving (id, row); `how` are the arguments of `Store.advance_together`."""
    for group in groups:
        yield from store.advance_together(group.ids, **how, until=group.until)


def _left(run: Run, stored: Entry | None, until: int | None) -> int:
    return min(run.rounds, until or run.rounds) - (stored.round if stored else 0)


def _nameless(run: Run) -> Run:
    """The run as the store compares it: two names of one spec are one run."""
    return run.model_copy(update={"name": ""})
