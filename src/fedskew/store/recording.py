"""One process training runs: rows and checkpoints as they come, and an end that is always written down."""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fedskew.errors import FedskewError
from fedskew.rounds import Beginning, Row
from fedskew.store import checkpoints
from fedskew.store.checkpoints import State
from fedskew.store.database import explained, transaction
from fedskew.store.entry import now

KEPT = 2  # the last checkpoint, and one before it in case the last is damaged
SHARE = 20  # a checkpoint that took t seconds is followed by at least 20 t of training: 5 % at most

log = logging.getLogger("fedskew.store")


def newest(db: sqlite3.Connection, run: str, folder: Path) -> tuple[int, State | None]:
    """The last round whose checkpoint is whole, and its state; (0, None) where there is none."""
    saved = db.execute("SELECT round, sha256 FROM checkpoints WHERE run = ? ORDER BY round DESC", (run,)).fetchall()
    for round, sha256 in saved:
        try:
            return round, checkpoints.read(folder, round, sha256)
        except checkpoints.Unusable as e:
            before = [r for r, _ in saved if r < round]
            instead = f"round {before[0]} is used instead" if before else "the run starts again"
            log.warning("run %s: the checkpoint of round %d cannot be used: %s; %s", run, round, e, instead)
    return 0, None


@dataclass
class Cadence:
    """When a checkpoint is due: every so many seconds, and never for more than a twentieth of the time."""

    every: float  # seconds between checkpoints; 0: after every round
    beside: int = 1  # runs that train together and write checkpoints of their own
    saved_at: float = field(default_factory=time.monotonic)
    cost: float = 0.0  # seconds the last checkpoint took

    def due(self) -> bool:
        """It is time for one."""
        waited = time.monotonic() - self.saved_at
        return self.every == 0 or waited >= max(self.every, SHARE * self.cost * self.beside)

    def saved(self, began: float) -> None:
        """One that began then is done."""
        self.saved_at = time.monotonic()
        self.cost = self.saved_at - began


@dataclass
class Recording:
    """The writing end of one run."""

    db: sqlite3.Connection
    path: Path  # of the database, for messages
    run: str
    folder: Path
    rounds: int
    every: float  # seconds between checkpoints; 0: after every round
    beside: int = 1  # runs that train together and write checkpoints of their own
    ended: bool = False
    last: Row | None = None
    saved: int = -1  # the round of the last checkpoint

    def __post_init__(self) -> None:
        self.cadence = Cadence(self.every, self.beside)

    def begin(self, round: int) -> None:
        """Forget what lies beyond the round that training goes on from."""
        with transaction(self.db, durable=True):
            self.db.execute("DELETE FROM rows WHERE run = ? AND round > ?", (self.run, round))
            self.db.execute("DELETE FROM checkpoints WHERE run = ? AND round > ?", (self.run, round))
            self._set("running", "")
        self._sweep()
        self.saved = round

    def append(self, row: Row) -> None:
        """Keep a row; the last one also ends the run."""
        if not row.diverged:
            self.last = row  # from here on an interruption saves this round, not the one before
        with explained(self.path):
            with transaction(self.db):
                self._keep(row)
            if row.diverged:
                self._diverge(row)
            elif row.round == self.rounds:
                self.checkpoint(row, "finished", "")
            elif self.cadence.due():
                self.checkpoint(row)

    def receive(self, row: Row, packed: bytes) -> None:
        """Keep a row that was trained elsewhere, with its state where a checkpoint was due there."""
        with explained(self.path):
            if packed:
                self.checkpoint(row, "finished" if row.round == self.rounds else None, state=packed)
                return
            with transaction(self.db):
                self._keep(row)
            if row.diverged:
                self._diverge(row)

    def checkpoint(self, row: Row, status: str | None = None, message: str = "", *, state: bytes | None = None) -> None:
        """The file first, then in one transaction the line that vouches for it, its row and the run's new status."""
        began = time.monotonic()
        sha256, size = checkpoints.write(self.folder, row.round, row.state if state is None else state)
        with transaction(self.db, durable=True):
            self._keep(row)
            self.db.execute(
                "INSERT OR REPLACE INTO checkpoints (run, round, sha256, bytes) VALUES (?, ?, ?, ?)",
                (self.run, row.round, sha256, size),
            )
            self.db.execute(
                "DELETE FROM checkpoints WHERE run = ?1 AND round NOT IN "
                "(SELECT round FROM checkpoints WHERE run = ?1 ORDER BY round DESC LIMIT ?2)",
                (self.run, KEPT),
            )
            if status:
                self._set(status, message)
        self.ended = status is not None
        self._sweep()
        self.saved = row.round
        self.cadence.saved(began)

    def end(self, status: str, message: str) -> None:
        """Write down how the run ended."""
        with transaction(self.db, durable=True):
            self._set(status, message)
        self.ended = True

    def leave(self, began: int) -> None:
        """There is no further row: the end, or the round that the run was to be brought to."""
        if self.ended:
            return
        reached = began if self.last is None else self.last.round
        if reached >= self.rounds:  # interrupted between its last row and the word "finished"
            self.end("finished", "")
        elif self.last is not None and reached > self.saved:
            self.checkpoint(self.last, "interrupted")
        else:
            self.end("interrupted", "")

    def stop(self, reason: BaseException) -> None:
        """Save what can be saved; whatever cannot be is trained again on resume."""
        if self.ended:
            return
        asked = isinstance(reason, (KeyboardInterrupt, SystemExit, GeneratorExit))
        status, message = ("interrupted", "") if asked else ("failed", str(reason) or type(reason).__name__)
        with suppress(FedskewError, sqlite3.Error):
            if self.last is not None and self.last.round > self.saved:
                self.checkpoint(self.last, status, message)
        with suppress(sqlite3.Error):
            if not self.ended:
                self.end(status, message)

    def _diverge(self, row: Row) -> None:
        self.end("diverged", f"the training loss was {row.loss} in round {row.round}; lower lr")

    def _keep(self, row: Row) -> None:
        self.db.execute(
            "INSERT OR REPLACE INTO rows (run, round, accuracy, record) VALUES (?, ?, ?, ?)",
            (self.run, row.round, row.accuracy, json.dumps(row.record())),
        )

    def _set(self, status: str, message: str) -> None:
        finished = None if status == "running" else now()
        self.db.execute(
            "UPDATE runs SET status = ?, message = ?, finished = ? WHERE id = ?",
            (status, message, finished, self.run),
        )

    def _sweep(self) -> None:
        kept = self.db.execute("SELECT round FROM checkpoints WHERE run = ?", (self.run,)).fetchall()
        checkpoints.keep(self.folder, {round for (round,) in kept})


def begin(recordings: Sequence[Recording], beginnings: Sequence[Beginning]) -> None:
    """Every run at its beginning."""
    for recording, at in zip(recordings, beginnings, strict=True):
        recording.begin(-1 if at.state is None else at.first_round - 1)  # from the start: row 0 is made again, too


def record(
    recordings: Sequence[Recording], beginnings: Sequence[Beginning], rows: Iterator[tuple[int, Row]]
) -> Generator[tuple[int, Row], None, None]:
    """Keep the rows of runs that train, each from its beginning to its end, then give them."""
    begin(recordings, beginnings)
    try:
        for i, row in rows:
            recordings[i].append(row)
            yield i, row
        for recording, at in zip(recordings, beginnings, strict=True):
            recording.leave(at.first_round - 1)
    except BaseException as e:
        for recording in recordings:
            recording.stop(e)
        raise
