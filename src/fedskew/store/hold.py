"""Runs taken for training: locked, with where each of them begins and a place for what comes of it."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedskew.data.dataset import Dataset
from fedskew.engine.choose import Engine, Precision
from fedskew.errors import FedskewError
from fedskew.rounds import Beginning
from fedskew.run import Run
from fedskew.store import database, origin, start
from fedskew.store.entry import PATIENCE, Entry, differences
from fedskew.store.recording import Recording, newest

if TYPE_CHECKING:
    from fedskew.store.store import Store

log = logging.getLogger("fedskew.store")


@dataclass(frozen=True)
class Hold:
    """Runs that nobody else can train for as long as this is held; those that were over are not among them."""

    db: sqlite3.Connection
    entries: list[Entry]
    runs: list[Run]
    beginnings: list[Beginning]
    recordings: list[Recording]

    @property
    def ids(self) -> list[str]:
        """Of the runs, in their order."""
        return [entry.id for entry in self.entries]

    def how(self, device: str, engine: Engine | None, precision: Precision | None) -> origin.How:
        """What was asked for, else what the first of the runs was started with."""
        before = self.entries[0].environment
        return origin.How(device, engine or before.get("engine", "auto"), precision or before.get("precision", "tf32"))

    def checked(self, data: Dataset | None) -> Dataset:
        """The data set, which must be the one that the runs were started with, split as it was then."""
        data = origin.loaded(self.runs[0], data)
        for entry, run, at in zip(self.entries, self.runs, self.beginnings, strict=True):
            same_data(entry.id, run, entry.fingerprint, origin.fingerprint(run, data, at.initial))
        return data

    def place(self, how: origin.How | dict[str, str | int]) -> None:
        """Write down where they are trained, and warn of runs that were begun elsewhere."""
        here = how if isinstance(how, dict) else origin.environment(how)
        for entry in self.entries:
            if entry.round and (changed := differences(entry.environment, here)):
                listed = ", ".join(f"{key} {a} -> {b}" for key, (a, b) in changed.items())
                log.warning(
                    "run %s goes on elsewhere (%s): its numbers may differ in the last digits", entry.id, listed
                )
        with database.transaction(self.db):
            self.db.executemany(
                "UPDATE runs SET environment = ? WHERE id = ?", [(json.dumps(here), id) for id in self.ids]
            )


@contextmanager
def take(
    store: Store,
    ids: Sequence[str],
    checkpoint_seconds: float = 5.0,
    until: int | None = None,
    patience: float = PATIENCE,
) -> Iterator[Hold]:
    """Hold these runs, to be brought to their end or to a round; refused where another process does and goes on."""
    with ExitStack() as locks:
        for id in sorted({store.find(id).id for id in ids}):  # in one order, so that no two wait for each other
            locks.enter_context(store.alone(id, patience))
        entries = [e for e in map(store.find, ids) if not e.over]  # found again: they may have ended while we waited
        db = locks.enter_context(database.writing(store.path))
        runs = [Run(**entry.spec) for entry in entries]
        beginnings, recordings = [], []
        for entry, run in zip(entries, runs, strict=True):
            home = store.folder / entry.id
            round, state = newest(db, entry.id, home)
            initial = start.read(run.start, store) if state is None else None
            beginnings.append(Beginning(initial, state, round + 1, until))
            recordings.append(Recording(db, store.path, entry.id, home, run.rounds, checkpoint_seconds, len(runs)))
        yield Hold(db, entries, runs, beginnings, recordings)


def same_data(id: str, run: Run, then: dict[str, str], now: dict[str, str]) -> None:
    """Refuse to go on with other data, another split or other first weights than the run was started with."""
    if changed := differences({key: then.get(key) for key in now}, now):
        raise FedskewError(
            f"run {id} ({run.data}, {run.partition}): {' and '.join(changed)} changed since its start; "
            "bring the old files back or start a new run"
        )
