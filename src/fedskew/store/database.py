"""The SQLite half of the store: schema, connections, transactions, and its errors in plain words."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from filelock import FileLock

from fedskew.errors import FedskewError

NAME = "fedskew.db"
SCHEMA = 1  # PRAGMA user_version; a larger number was written by a later fedskew
PATIENCE = 60.0  # seconds to wait for another process's transaction, each of which takes milliseconds
LOOKS = 25  # at a file that changes under our eyes where we cannot lock it, half a second in all
TICK = 0.1  # seconds; two changes closer together may leave a file with one time

_TABLES = (
    """CREATE TABLE runs (
        id TEXT PRIMARY KEY, name TEXT NOT NULL, created TEXT NOT NULL,
        data TEXT NOT NULL, partition TEXT NOT NULL, algorithm TEXT NOT NULL, rounds INTEGER NOT NULL,
        spec TEXT NOT NULL, fingerprint TEXT NOT NULL, environment TEXT NOT NULL,
        status TEXT NOT NULL, message TEXT NOT NULL, finished TEXT) WITHOUT ROWID""",
    """CREATE TABLE rows (
        run TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, round INTEGER NOT NULL, accuracy REAL,
        record TEXT NOT NULL, PRIMARY KEY (run, round)) WITHOUT ROWID""",
    """CREATE TABLE checkpoints (
        run TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, round INTEGER NOT NULL,
        sha256 TEXT NOT NULL, bytes INTEGER NOT NULL, PRIMARY KEY (run, round)) WITHOUT ROWID""",
)

_MEANING = {
    sqlite3.SQLITE_FULL: "nothing was lost; free some space and go on",
    sqlite3.SQLITE_IOERR: "the disk refused a read or a write; check its space and health",
    sqlite3.SQLITE_NOTADB: "it is not a fedskew store; choose another folder with FEDSKEW_STORE",
    sqlite3.SQLITE_CORRUPT: "it is damaged; restore a copy or choose another folder with FEDSKEW_STORE",
    sqlite3.SQLITE_READONLY: "it cannot be written; choose another folder with FEDSKEW_STORE",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; choose another folder with FEDSKEW_STORE",
    sqlite3.SQLITE_BUSY: f"another process kept it busy for {PATIENCE:.0f} s; end that one and try again",
}


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """A failing database becomes one line that says what to do."""
    try:
        yield
    except sqlite3.Error as e:
        code = getattr(e, "sqlite_errorcode", None)  # an extended code: the low byte is the kind
        meaning = _MEANING.get(code & 0xFF) if isinstance(code, int) else None
        if meaning is None:
            raise
        raise FedskewError(f"{path}: {e}: {meaning}") from e


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write; the file must exist."""
    with explained(path):
        made = _refuse_other_schemas(path) > 0
        with _read_only(path) if made else closing(_nothing()) as db:
            yield db


@contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that can write; the tables are made if there are none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise FedskewError(f"{path.parent}: {e.strerror}; choose another folder with FEDSKEW_STORE") from e
    with explained(path):
        if not path.exists() or _refuse_other_schemas(path) == 0:
            _make(path)
        with closing(_connect(path.as_uri())) as db:
            db.execute("PRAGMA foreign_keys = ON")
            yield db


@contextmanager
def transaction(db: sqlite3.Connection, *, durable: bool = False) -> Iterator[None]:
    """All or nothing. A durable one survives a power cut, and with it everything committed before.

    Others survive a killed process but not a power cut, and cost no fsync: WAL with synchronous = NORMAL.
    """
    db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    try:  # from here on: a signal that comes while it begins is heard when it has begun
        db.execute("BEGIN IMMEDIATE")  # waits here for other writers rather than failing at the first write
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _connect(uri: str) -> sqlite3.Connection:
    db = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)
    db.row_factory = sqlite3.Row
    return db


class Disturbed(FedskewError):
    """A file was read without a lock while another process wrote it, so what was read means nothing."""


@contextmanager
def _read_only(path: Path, *, tidy: bool = True) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write, under SQLite's own locks: it sees whole transactions only.

    A reader must be able to tidy the log away when it is the last to leave, unless it is to leave all as it is. Where
    it cannot write, it can make no log to lock: a file without one is then read as one that nobody writes (immutable),
    and what was read counts only if nobody did.
    """
    ours = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    before = _traces(path)
    log, journal, *_ = before
    immutable = not (ours or log or journal)
    mode = "rw" if ours and (tidy or not log) else "ro"
    try:
        with closing(_connect(f"{path.as_uri()}?mode={mode}{'&immutable=1' if immutable else ''}")) as db:
            db.execute("PRAGMA query_only = ON")
            yield db
    except sqlite3.Error as e:
        if ours or _still(path, before):
            raise
        raise _disturbed(path) from e
    if immutable and not _still(path, before):
        raise _disturbed(path)


def _traces(path: Path) -> tuple[bool, bool, int, int, int]:
    """What another process's writing would change: the logs beside the file, and the file."""
    log, journal = (path.with_name(path.name + end).exists() for end in ("-wal", "-journal"))
    try:
        file = path.stat()
    except OSError:  # SQLite will say that it cannot be opened
        return log, journal, 0, 0, 0
    return log, journal, file.st_ino, file.st_size, file.st_mtime_ns


def _still(path: Path, before: tuple[bool, bool, int, int, int]) -> bool:
    just_now = 0 <= time.time() - before[-1] / 1e9 < TICK
    return not just_now and _traces(path) == before


def _disturbed(path: Path) -> Disturbed:
    return Disturbed(f"{path}: another process is writing it, and this one may only look; try again")


def _nothing() -> sqlite3.Connection:
    """What a reader meets before the tables are made: a store without runs."""
    db = _connect("file::memory:")
    _create(db)
    return db


def _refuse_other_schemas(path: Path) -> int:
    """The schema number, read without touching a byte of what is not ours; 0 for an empty file."""
    for left in reversed(range(LOOKS)):
        try:
            version, tables = _glance(path)
            break
        except Disturbed:
            if not left:
                raise
            time.sleep(0.02)
    if version > SCHEMA:
        raise FedskewError(
            f"{path}: schema {version} is from a later fedskew, this one knows {SCHEMA}; upgrade fedskew"
        )
    if (version == 0 and tables) or (version and not {"runs", "rows", "checkpoints"} <= tables):
        raise FedskewError(f"{path}: it is not a fedskew store; choose another folder with FEDSKEW_STORE")
    return version


def _glance(path: Path) -> tuple[int, set[str]]:
    with _read_only(path, tidy=False) as db:
        db.execute("BEGIN")  # both from the same moment: another process may be making the tables
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        return version, {str(name) for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _make(path: Path) -> None:
    """Switch to WAL and create the tables, one process at a time: SQLite does not wait while it switches."""
    with FileLock(path.with_name(path.name + ".lock")), closing(_connect(path.as_uri())) as db:
        if db.execute("PRAGMA user_version").fetchone()[0] == SCHEMA:
            return
        db.execute("PRAGMA journal_mode = WAL")
        with transaction(db, durable=True):
            _create(db)


def _create(db: sqlite3.Connection) -> None:
    for table in _TABLES:
        db.execute(table)
    db.execute(f"PRAGMA user_version = {SCHEMA}")
