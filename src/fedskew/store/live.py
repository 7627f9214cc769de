"""What someone who watches a store asks: every run with its pace, and a few values of many rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedskew.store import database
from fedskew.store.entry import Entry, checked_id

if TYPE_CHECKING:
    from fedskew.store.store import Store

Stamp = tuple[tuple[int, int, int], ...]

PACE = 20  # rounds whose time says how long the rest will take

# A round that diverged holds a NaN, which is no JSON: its values are missing.
_VALUE = "CASE WHEN json_valid(record) THEN json_extract(record, '$.{}') END"


@dataclass(frozen=True)
class Standing:
    """A run and where it stands."""

    entry: Entry
    emd: float | None  # of the clients of the last round
    seconds: float | None  # a round at the present pace; None where nothing was timed or nothing runs

    @property
    def seconds_left(self) -> float | None:
        """Until its last round at the pace of the last rounds; None of a run that nobody trains."""
        return None if self.seconds is None else self.seconds * (self.entry.rounds - self.entry.round)


def standings(store: Store) -> list[Standing]:
    """Every run, the newest first; what it costs does not grow with the number of rows."""
    entries = store.runs()
    if not entries:
        return []
    value = _VALUE.format("emd")
    emds = f"""SELECT id, (SELECT {value} FROM rows WHERE run = id AND json_valid(record)
                ORDER BY round DESC LIMIT 1) FROM runs"""
    paces = f"""SELECT avg(seconds) FROM (SELECT {_VALUE.format("seconds")} AS seconds FROM rows
                WHERE run = ? AND round > 0 ORDER BY round DESC LIMIT {PACE})"""
    with database.reading(store.path) as db:
        emd = dict(db.execute(emds).fetchall())
        pace = {e.id: db.execute(paces, (e.id,)).fetchone()[0] for e in entries if e.status == "running"}
    return [Standing(e, emd.get(e.id), pace.get(e.id)) for e in entries]


def columns(store: Store, id: str, keys: Sequence[str], *, after: int = -1) -> list[tuple[Any, ...]]:
    """(round, value, ...) of every row after a round: the values of these keys, dotted where they are nested."""
    if odd := [key for key in keys if not key.replace(".", "").replace("_", "").isalnum()]:
        raise ValueError(f"not the name of a value: {odd[0]!r}")
    asked = ", ".join("accuracy" if key == "accuracy" else _VALUE.format(key) for key in keys)
    query = f"SELECT round, {asked} FROM rows WHERE run = ? AND round > ? ORDER BY round"
    with database.reading(store.path) as db:
        return [tuple(row) for row in db.execute(query, (checked_id(id), after))]


def tails(store: Store, ids: Iterable[str], evaluations: int) -> dict[str, list[dict[str, Any]]]:
    """The last evaluations of each run and its last row, as `Row.record` made them: all that a summary needs."""
    query = """SELECT record FROM rows WHERE run = :run AND round IN (
        SELECT round FROM (SELECT round FROM rows WHERE run = :run AND accuracy IS NOT NULL
                           ORDER BY round DESC LIMIT :number)
        UNION SELECT max(round) FROM rows WHERE run = :run) ORDER BY round"""
    with database.reading(store.path) as db:
        return {
            id: [json.loads(r) for (r,) in db.execute(query, {"run": checked_id(id), "number": evaluations})]
            for id in ids
        }


def prepared(store: Store, id: str) -> dict[str, Any] | None:
    """What a run's row 0 says was shared and warmed up, where there is one."""
    query = "SELECT record FROM rows WHERE run = ? AND round = 0"
    with database.reading(store.path) as db:
        found = db.execute(query, (checked_id(id),)).fetchone()
    told: dict[str, Any] | None = json.loads(found[0]).get("prepared") if found else None
    return told


def stamp(store: Store) -> Stamp:
    """What changes whenever a process writes to the store; reading it touches nothing."""
    found = []
    for name in (store.path.name, f"{store.path.name}-wal"):
        try:
            file = store.path.with_name(name).stat()
            found.append((file.st_ino, file.st_size, file.st_mtime_ns))
        except OSError:
            found.append((0, 0, 0))
    return tuple(found)
