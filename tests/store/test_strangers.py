"""The store refuses names that are no ids, links that lead out of it, and files that are not its own."""

import sqlite3
from contextlib import closing

import pytest
from small_runs import listing, small

from fedskew.errors import FedskewError
from fedskew.store import database

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    "id", ["../x", "%2e%2e", "..", "a", "", "ab\0cd", "ABCD", "abcdef012", "/etc", "ab\n", "*", "ab%", "abc_"]
)
def test_only_ids_are_ids(store, id):
    list(store.advance(store.create(small(rounds=1))))
    before = listing(store.folder)
    for use in (store.find, store.records, store.state, store.delete, lambda i: next(store.advance(i))):
        with pytest.raises(FedskewError, match="is not 2 to 8 of the characters 0-9a-f"):
            use(id)
    assert listing(store.folder) == before


def test_a_beginning_of_an_id_is_enough_when_it_is_the_only_one(store):
    ids = [store.create(small()) for _ in range(20)]
    for id in ids:
        unique = next(n for n in range(2, 9) if sum(i.startswith(id[:n]) for i in ids) == 1)
        assert store.find(id[:unique]).id == id
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("UPDATE runs SET id = 'abcd0001' WHERE id = ?", (ids[0],))
        db.execute("UPDATE runs SET id = 'abcd0002' WHERE id = ?", (ids[1],))
    with pytest.raises(FedskewError, match=r"fits abcd0001, abcd0002; write more of it"):
        store.find("abcd")


def test_a_link_out_of_the_store_is_refused(store, tmp_path):
    id = store.create(small())
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("keep me")
    (store.folder / id).symlink_to(outside)
    for use in (store.delete, store.state, lambda i: next(store.advance(i))):
        with pytest.raises(FedskewError, match="leads out of the store"):
            use(id)
    assert store.runs()[0].status == "interrupted"
    assert listing(outside) == {"precious": b"keep me"}


def test_a_newer_schema_is_refused_and_untouched(store):
    list(store.advance(store.create(small(rounds=1))))
    with closing(sqlite3.connect(store.path)) as db:
        db.execute(f"PRAGMA user_version = {database.SCHEMA + 1}")
    before = listing(store.folder)
    for use in (store.runs, lambda: store.create(small()), lambda: store.delete("ab")):
        with pytest.raises(FedskewError, match=r"is from a later fedskew.*upgrade"):
            use()
    assert listing(store.folder) == before


def test_a_newer_schema_still_in_the_log_is_seen(store):
    store.create(small())
    with closing(sqlite3.connect(store.path)) as db:
        db.execute(f"PRAGMA user_version = {database.SCHEMA + 1}")
        assert store.path.with_name("fedskew.db-wal").stat().st_size
        with pytest.raises(FedskewError, match="is from a later fedskew"):
            store.create(small())


def test_strange_files_are_refused(store):
    store.folder.mkdir()
    store.path.write_bytes(b"this is not a database, whatever its name says" * 100)
    before = listing(store.folder)
    for use in (store.runs, lambda: store.create(small())):
        with pytest.raises(FedskewError, match="not a fedskew store"):
            use()
    assert listing(store.folder) == before
    store.path.unlink()
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("CREATE TABLE recipes (id)")
    for use in (store.runs, lambda: store.create(small())):
        with pytest.raises(FedskewError, match="not a fedskew store"):
            use()
