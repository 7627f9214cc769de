"""Processes that make, write and read one store at the same time: nobody meets half of what another is doing."""

import multiprocessing
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import ExitStack, closing

import pytest

from fedskew.errors import FedskewError
from fedskew.store import Store, database

PROCESSES = multiprocessing.get_context("spawn")
STORES, ROWS, WRITERS, READERS = 30, 4, 2, 2
INSERT = "INSERT INTO runs VALUES (?, ?, '', '', '', '', 1, '{}', '{}', '{}', 'finished', '', NULL)"


def work(do, id, together, folders):
    try:
        for folder in folders:
            together.wait(60)
            do(id, folder)
    finally:
        together.abort()  # nobody waits for one that failed


def write(id, folder):
    """Each row in a connection of its own, so that the log comes and goes."""
    for i in range(ROWS):
        with database.writing(folder / database.NAME) as db, database.transaction(db):
            db.execute(INSERT, (f"{id}{i}", "x" * 20_000))


def read(id, folder):
    """Look without a pause until all rows are there."""
    until = time.monotonic() + 20
    seen = 0
    while seen < WRITERS * ROWS:
        found = len(Store(folder).runs())
        assert seen <= found
        assert time.monotonic() < until
        seen = found


def test_a_store_is_read_while_others_make_it(tmp_path):
    folders = [tmp_path / str(i) for i in range(STORES)]
    together = PROCESSES.Barrier(WRITERS + READERS)
    works = [write] * WRITERS + [read] * READERS
    children = [PROCESSES.Process(target=work, args=(do, k, together, folders)) for k, do in enumerate(works)]
    for child in children:
        child.start()
    try:
        for child in children:
            child.join(60)
        assert [child.exitcode for child in children] == [0] * len(children)
    finally:
        for child in children:
            child.kill()


HOLD = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode = DELETE")
db.execute("PRAGMA cache_size = 1")
db.execute("BEGIN")
for i in range(100):  # a schema of several pages: the first page is the last to be written
    db.execute(f"CREATE TABLE other{i} (x)")
db.execute("COMMIT")
db.execute("BEGIN")
for table in ("rows", "checkpoints", "runs"):
    db.execute(f"DROP TABLE {table}")
for i in range(200):  # more than the cache holds: the file itself now has half a transaction
    db.execute("INSERT INTO other0 VALUES (zeroblob(4000))")
print("half", flush=True)
sys.stdin.readline()
db.execute("ROLLBACK")
"""


def half_written(path):
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "half\n"
    return child


def one_run(store):
    with database.writing(store.path) as db, database.transaction(db):
        db.execute(INSERT, ("00000000", ""))


def test_half_a_transaction_in_the_file_is_waited_for(tmp_path):
    store = Store(tmp_path)
    one_run(store)
    child = half_written(store.path)
    reader = PROCESSES.Process(target=expect_one_run, args=(tmp_path,))
    reader.start()
    time.sleep(0.5)
    assert reader.exitcode is None  # neither damaged nor from a later fedskew
    child.communicate("go on\n")
    reader.join(60)
    assert reader.exitcode == 0


def expect_one_run(folder):
    assert len(Store(folder).runs()) == 1


def test_half_a_transaction_of_a_dead_process_is_undone(tmp_path):
    store = Store(tmp_path)
    one_run(store)
    child = half_written(store.path)
    child.kill()
    child.communicate()
    assert store.path.with_name("fedskew.db-journal").stat().st_size
    assert len(store.runs()) == 1


def test_an_empty_file_is_a_store_without_runs(tmp_path):
    store = Store(tmp_path)
    store.path.touch()
    assert store.runs() == []
    one_run(store)
    assert len(store.runs()) == 1


def test_a_later_store_left_with_its_log_is_untouched(tmp_path):
    store, left = Store(tmp_path / "live"), Store(tmp_path / "left")
    one_run(store)
    with closing(sqlite3.connect(store.path)) as db:
        db.execute(f"PRAGMA user_version = {database.SCHEMA + 1}")
        shutil.copytree(store.folder, left.folder)  # as after a kill
    files = [left.path, left.path.with_name("fedskew.db-wal")]
    before = [f.read_bytes() for f in files]
    assert before[1]
    with pytest.raises(FedskewError, match="is from a later fedskew"):
        left.runs()
    assert [f.read_bytes() for f in files] == before


@pytest.fixture
def window(tmp_path, mount):
    """A folder and the same folder as one that cannot be written."""
    folder, view = tmp_path / "folder", tmp_path / "view"
    folder.mkdir()
    view.mkdir()
    mount("--bind", folder, at=view)
    subprocess.run(["mount", "-o", "remount,bind,ro", view], check=True)
    return folder, view


def test_a_file_that_changes_where_it_cannot_be_locked_is_not_believed(window):
    folder, view = window
    store, seen = Store(folder), Store(view)
    one_run(store)
    assert len(seen.runs()) == 1
    time.sleep(2 * database.TICK)
    reading = ExitStack()
    db = reading.enter_context(database.reading(seen.path))
    assert db.execute("SELECT count(*) FROM runs").fetchone()[0] == 1
    with database.writing(store.path) as other, database.transaction(other):
        other.execute(INSERT, ("00000001", ""))
    with pytest.raises(FedskewError, match="another process is writing it"):
        reading.close()
    assert len(seen.runs()) == 2  # once it is at rest again


def test_what_is_damaged_is_still_called_so_where_it_cannot_be_locked(window):
    folder, view = window
    (folder / database.NAME).write_bytes(b"this is not a database, whatever its name says" * 100)
    with pytest.raises(FedskewError, match="not a fedskew store"):
        Store(view).runs()
