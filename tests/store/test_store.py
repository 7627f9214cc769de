"""The store: what goes in comes out, and what does not belong to a run is refused."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import torch
from small_runs import expected, rows, small, stop_after

from fedskew.data import datasets
from fedskew.errors import FedskewError
from fedskew.rounds import Row
from fedskew.run import Run
from fedskew.store import Store

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_rows_of_a_run_are_kept(store):
    run = small(name="first", divergence=True, eval_every=2)
    id = store.create(run)
    given = list(store.advance(id))
    assert rows(store, id) == expected(run)
    assert [Row.from_record(r) for r in store.records(id)] == given
    assert store.records(id, after=4) == store.records(id)[4:]
    assert store.evaluations(id) == [(row.round, row.accuracy) for row in given if row.round % 2 == 0]
    (entry,) = store.runs()
    assert (entry.id, entry.name, entry.status, entry.round, entry.rounds) == (id, "first", "finished", 6, 6)
    assert (entry.data, entry.partition, entry.algorithm) == ("digits", "classes:2", "fedavg")
    assert entry.accuracy == given[-1].accuracy
    assert Run(**entry.spec) == run
    assert entry.environment["torch"] == torch.__version__
    told = Path("/proc/cpuinfo")  # by name: another maker's processor adds in another order
    named = told.exists() and re.search(r"^model name\s*: (.+)$", told.read_text(), re.MULTILINE)
    assert not named or named[1] in entry.environment["device"]
    round, state = store.state(id)
    assert round == 6
    assert list(state) == list(given[-1].state)
    assert all(torch.equal(x, state["w"][leaf]) for leaf, x in given[-1].state["w"].items())


def test_reading_a_store_that_is_not_there_makes_nothing(store):
    assert store.runs() == []
    with pytest.raises(FedskewError, match="no run 'abcd'"):
        store.find("abcd")
    assert not store.folder.exists()


def test_the_folder_comes_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSKEW_STORE", str(tmp_path / "elsewhere"))
    assert Store().folder == tmp_path / "elsewhere"
    monkeypatch.setenv("FEDSKEW_STORE", "")
    assert Store().folder == tmp_path / "runs"


def test_a_run_that_is_over_gives_no_row(store):
    id = store.create(small(rounds=2))
    assert len(list(store.advance(id))) == 2
    before = store.find(id)
    assert list(store.advance(id)) == []
    assert store.find(id) == before


def test_another_spec_is_refused_and_the_keys_are_named(store):
    id = store.create(small())
    store.check(id, small(name="a name changes nothing"))
    with pytest.raises(FedskewError, match="another spec") as e:
        store.check(id, small(lr=0.1, partition="classes:1", algorithm="fedavgm:0.9"))
    found = "partition.n (stored 2, now 1), algorithm (stored 'fedavg', now 'fedavgm'), lr (stored 0.5, now 0.1); "
    assert found in str(e.value)


def test_other_data_are_refused(store):
    data = datasets.load("digits")
    id = store.create(small(), data)
    stop_after(store, id, 2, data=data)
    before = rows(store, id)
    x = data.x.copy()
    x[-1, 0, 0, 0] ^= 1
    changed = datasets.from_arrays(x, data.y, data.x_test, data.y_test)
    with pytest.raises(FedskewError, match="data changed since"):
        next(store.advance(id, data=changed))
    assert rows(store, id) == before
    assert store.find(id).status == "interrupted"
    assert [row.round for row in store.advance(id, data=data)] == [3, 4, 5, 6]


def test_another_split_file_is_refused(store, tmp_path):
    path = tmp_path / "split.csv"
    lines = [f"{i % 2},{i}" for i in range(100)]
    path.write_text("\n".join(["user,index", *lines]) + "\n")
    run = Run(data="digits", model="softmax", partition=f"file:{path}", rounds=2)
    id = store.create(run)
    stop_after(store, id, 1)
    path.write_text("\n".join(["user,index", *lines[:-1], "0,99"]) + "\n")
    with pytest.raises(FedskewError, match="partition changed since"):
        next(store.advance(id))


def test_delete_removes_everything_of_a_run_and_nothing_else(store):
    first, second = store.create(small()), store.create(small(seed=1))
    for id in (first, second):
        list(store.advance(id))
    kept = rows(store, second)
    store.delete(first)
    assert [e.id for e in store.runs()] == [second]
    assert not (store.folder / first).exists()
    assert rows(store, second) == kept
    with closing(sqlite3.connect(store.path)) as db:
        assert db.execute("SELECT DISTINCT run FROM rows UNION SELECT run FROM checkpoints").fetchall() == [(second,)]
