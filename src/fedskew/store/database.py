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
LOOKS = 25  # at a file that another process may be writing, half a second in all

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
        _refuse_other_schemas(path)
        with closing(_read_only(path)) as db:
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
    db.execute("BEGIN IMMEDIATE")  # waits here for other writers rather than failing at the first write
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _connect(uri: str) -> sqlite3.Connection:
    db = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)
    db.row_factory = sqlite3.Row
    return db


def _read_only(path: Path) -> sqlite3.Connection:
    """A reader must be able to tidy the log away when it is the last to leave; where it cannot, it only looks."""
    log = path.with_name(path.name + "-wal")
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        db = _connect(f"{path.as_uri()}?mode=rw")
        db.execute("PRAGMA query_only = ON")
        return db
    return _connect(f"{path.as_uri()}?mode=ro{'' if log.exists() else '&immutable=1'}")


def _refuse_other_schemas(path: Path) -> int:
    """The schema number, read without touching a byte beside or in the file; 0 for an empty one."""
    for left in reversed(range(LOOKS)):
        try:
            version, tables = _glance(path)
            break
        except sqlite3.DatabaseError:
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
    """Without a log the file is read as one that nobody writes: if somebody does, the glance may fail or be torn."""
    log = path.with_name(path.name + "-wal")
    option = "mode=ro" if log.exists() else "mode=ro&immutable=1"
    with closing(_connect(f"{path.as_uri()}?{option}")) as db:
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        return version, {str(name) for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _make(path: Path) -> None:
    """Switch to WAL and create the tables, one process at a time: SQLite does not wait while it switches."""
    with FileLock(path.with_name(path.name + ".lock")), closing(_connect(path.as_uri())) as db:
        if db.execute("PRAGMA user_version").fetchone()[0] == SCHEMA:
            return
        db.execute("PRAGMA journal_mode = WAL")
        with transaction(db, durable=True):
            for table in _TABLES:
                db.execute(table)
            db.execute(f"PRAGMA user_version = {SCHEMA}")
