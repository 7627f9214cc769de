"""The store's door: find, read, create, advance and delete runs."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from fedskew.errors import FedskewError
from fedskew.shown import Shown
from fedskew.store import database
from fedskew.store.entry import PATIENCE, QUERY, Entry, Records, checked_id, checkpoint_name, differences, now

if TYPE_CHECKING:  # torch is imported by the methods that train, so that reading starts fast
    from fedskew.data.dataset import Dataset
    from fedskew.engine.choose import Engine, Precision
    from fedskew.rounds import Row
    from fedskew.run import Run
    from fedskew.store.checkpoints import State

By = Callable[..., Iterator[tuple[int, "Row"]]]  # the arguments of `experiment.train_together`


class Store(Shown):
    """A folder with `fedskew.db` and one folder of checkpoints a run: FEDSKEW_STORE, else ./runs."""

    def __init__(self, folder: Path | str | None = None) -> None:
        self.folder = Path(folder or os.environ.get("FEDSKEW_STORE") or "runs").resolve()
        self.path = self.folder / database.NAME

    def runs(self) -> list[Entry]:
        """Every run, the newest first."""
        return self._entries(f"{QUERY} ORDER BY created DESC, id")

    def find(self, id: str) -> Entry:
        """The run with this id, or the only one whose id begins so."""
        found = self._entries(f"{QUERY} WHERE id LIKE ? ORDER BY id", checked_id(id) + "%")
        if not found:
            raise FedskewError(f"no run {id!r} in {self.folder}; the ids are in: fedskew runs list")
        if len(found) > 1:
            raise FedskewError(f"run id {id!r} fits {', '.join(e.id for e in found[:5])}; write more of it")
        return found[0]

    def same(self, run: Run) -> Entry | None:
        """A stored run with this spec (its name aside): a finished one if there is, else the one that got furthest."""
        return self.alike([run])[0]

    def alike(self, runs: Sequence[Run]) -> list[Entry | None]:
        """`same` of each of many runs, with every stored run looked at once."""
        found: dict[str, Entry] = {}
        only = runs[0].spec() if len(runs) == 1 else {}
        simple = {k: v for k, v in only.items() if k != "name" and not isinstance(v, dict)}
        for data, partition, algorithm, rounds in dict.fromkeys(map(_told, runs)):
            told = (data, partition, algorithm, str(rounds))
            for e in self._entries(f"{QUERY} WHERE data = ? AND partition = ? AND algorithm = ? AND rounds = ?", *told):
                if any(e.spec.get(k, v) != v for k, v in simple.items()):
                    continue  # a glance saves making it a run
                key = _nameless(type(runs[0])(**e.spec))  # a key that is younger than the stored run has its default
                found[key] = max(found.get(key, e), e, key=lambda e: (e.over, e.round))
        return [found.get(_nameless(run)) for run in runs]

    def records(self, id: str, *, after: int = -1) -> Records:
        """The rows of a run after a round, as `Row.record` made them."""
        run = self.find(id).id
        with database.reading(self.path) as db:
            found = db.execute("SELECT record FROM rows WHERE run = ? AND round > ? ORDER BY round", (run, after))
            return Records(json.loads(record) for (record,) in found)

    def evaluations(self, id: str) -> list[tuple[int, float]]:
        """(round, accuracy) of every evaluation of a run; quick, since no row is unpacked."""
        run = self.find(id).id
        query = "SELECT round, accuracy FROM rows WHERE run = ? AND accuracy IS NOT NULL ORDER BY round"
        with database.reading(self.path) as db:
            return [(round, accuracy) for round, accuracy in db.execute(query, (run,))]

    def checkpoints(self, id: str) -> list[dict[str, Any]]:
        """Round, file, sha256 and size of the checkpoints kept, the newest first."""
        run = self.find(id).id
        with database.reading(self.path) as db:
            found = db.execute(
                "SELECT round, sha256, bytes FROM checkpoints WHERE run = ? ORDER BY round DESC", (run,)
            ).fetchall()
        return [{"file": f"{run}/{checkpoint_name(c['round'])}"} | dict(c) for c in found]

    def state(self, id: str) -> tuple[int, State | None]:
        """The last round with a whole checkpoint and what training held then; (0, None) without one."""
        from fedskew.store.recording import newest

        run = self.find(id).id
        with database.reading(self.path) as db:
            return newest(db, run, self._home(run))

    def document(self, id: str) -> dict[str, Any]:
        """A run as the one JSON document that `train`, `resume` and `runs export` print."""
        entry, rows = self.find(id), self.records(id)
        return {
            "id": entry.id,
            "status": entry.status,
            "message": entry.message,
            "run": entry.spec,
            "accuracy": entry.accuracy,
            "seconds": sum(row["seconds"] for row in rows),
            "rows": rows,
        }

    def create(self, run: Run, data: Dataset | None = None) -> str:
        """Write the run down and give its id; nothing is trained yet."""
        return self.create_all([run], data)[0]

    def create_all(self, runs: Sequence[Run], data: Dataset | None = None) -> list[str]:
        """Write runs down and give their ids: all of them, or none where one cannot be trained."""
        from fedskew.store import origin, start

        loaded: dict[str, Dataset] = {} if data is None else {run.data: data for run in runs}
        prints = []
        for run in runs:
            if run.data not in loaded:
                loaded[run.data] = origin.loaded(run, None)
            prints.append(origin.fingerprint(run, loaded[run.data], start.read(run.start, self)))
        ids: list[str] = []
        with database.writing(self.path) as db, database.transaction(db, durable=True):
            for run, printed in zip(runs, prints, strict=True):
                while True:
                    id = secrets.token_hex(4)
                    if not db.execute("SELECT 1 FROM runs WHERE id = ?", (id,)).fetchone():
                        break
                db.execute(
                    "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, '{}', 'running', '', NULL)",
                    (id, run.name, now(), *_told(run), json.dumps(run.spec()), json.dumps(printed)),
                )
                ids.append(id)
        return ids

    def check(self, id: str, run: Run) -> None:
        """Refuse a run that is not the stored one; its name may differ."""
        entry = self.find(id)
        stored = type(run)(**entry.spec).spec()  # a key that is younger than the stored run has its default
        found = differences(stored, run.spec())
        found.pop("name", None)
        if found:
            listed = ", ".join(f"{key} (stored {a!r}, now {b!r})" for key, (a, b) in found.items())
            raise FedskewError(f"run {entry.id} was started with another spec: {listed}; start a new run")

    def advance(self, id: str, **how: Any) -> Generator[Row, None, None]:
        """Train a run to its end, from its start or where it stopped; a run that is over gives no row.

        Takes the arguments of `advance_together`.
        """
        for _, row in self.advance_together([id], **how):
            yield row

    def advance_together(
        self,
        ids: Sequence[str],
        *,
        data: Dataset | None = None,
        device: str = "auto",
        engine: Engine | None = None,
        precision: Precision | None = None,
        checkpoint_seconds: float = 5.0,
        until: int | None = None,
        by: By | None = None,
        patience: float = PATIENCE,
    ) -> Generator[tuple[str, Row], None, None]:
        """Train runs of one shape to their end as one computation, each from where it stands; gives (id, row).

        With `until` they stop after that round, to go on another time: they are then interrupted, not finished.
        Resumed runs keep the engine and the precision that the first of them was started with unless others are given.
        `by` trains them in place of `experiment.train_together`: a federation. `patience` are the seconds to wait for
        another process that has one of them; then they are refused.
        """
        from fedskew.experiment import train_together
        from fedskew.store.hold import take
        from fedskew.store.recording import record

        with take(self, ids, checkpoint_seconds, until, patience) as held:
            if not held.runs:
                return
            how = held.how(device, engine, precision)
            data = held.checked(data)
            held.place(how)
            rows = (by or train_together)(held.runs, data=data, **vars(how), beginnings=held.beginnings)
            for i, row in record(held.recordings, held.beginnings, rows):
                yield held.ids[i], row

    def delete(self, id: str) -> None:
        """Remove a run, its rows and its checkpoints; refused while it is being trained."""
        id = self.find(id).id
        home = self._home(id)
        with self.alone(id), database.writing(self.path) as db, database.transaction(db, durable=True):
            db.execute("DELETE FROM runs WHERE id = ?", (id,))
        shutil.rmtree(home, ignore_errors=True)

    def _entries(self, query: str, *values: str) -> list[Entry]:
        if not self.path.exists():
            return []
        with database.reading(self.path) as db:
            found = [Entry.of(row) for row in db.execute(query, values)]
        # a process that was killed could not say so; its lock is free
        return [replace(e, status="interrupted") if e.status == "running" and self._idle(e.id) else e for e in found]

    def _home(self, id: str) -> Path:
        """The folder of a run, which must be where its name says."""
        home = self.folder / checked_id(id)
        if home.resolve() != self.folder.resolve() / id:
            raise FedskewError(f"{home} leads out of the store; remove that link")
        return home

    def _lock(self, id: str) -> FileLock:
        return FileLock(self._home(id) / "lock", thread_local=False)

    @contextmanager
    def alone(self, id: str, patience: float = PATIENCE) -> Iterator[Path]:
        """No other process trains or deletes this run (given: its folder); the system frees the lock of a dead one."""
        lock = self._lock(id)
        try:
            self._home(id).mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=patience)
        except Timeout:
            raise FedskewError(f"run {id} is being trained by another process; wait for it or end it") from None
        except OSError as e:
            raise FedskewError(f"{self._home(id)}: {e.strerror}; mend that and try again") from e
        try:
            yield self._home(id)
        finally:
            lock.release()

    def _idle(self, id: str) -> bool:
        """No process holds the run's lock."""
        if not (self.folder / id / "lock").exists():
            return True
        try:
            with self._lock(id).acquire(timeout=0):
                return True
        except Timeout:
            return False
        except (OSError, FedskewError):  # a store that can only be read, or a link out of it
            return True


def _told(run: Run) -> tuple[str, str, str, int]:
    """What the table of runs says of a run, and finds it by."""
    return run.data, str(run.partition), str(run.algorithm), run.rounds


def _nameless(run: Run) -> str:
    return json.dumps(run.spec() | {"name": ""}, sort_keys=True)
