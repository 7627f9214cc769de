"""The store: what goes in comes out, a stopped run goes on bit for bit."""

import os
import sqlite3
import subprocess
import threading
import time
from contextlib import closing

import numpy as np
import pytest
import torch
from small_runs import SMALL, expected, rows, small, stop_after

from fedskew.data import datasets
from fedskew.errors import FedskewError
from fedskew.rounds import Row
from fedskew.run import Run
from fedskew.store import Store
from fedskew.store.entry import checkpoint_name

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_rows_of_a_run_are_kept(store):
    run = small(name="first", divergence=True, eval_every=2)
    id = store.create(run)
    given = list(store.advance(id))
    assert rows(store, id) == expected(run)
    assert [Row.from_record(r) for r in store.records(id)] == given
    assert store.records(id, after=4) == store.records(id)[4:]
    (entry,) = store.runs()
    assert (entry.id, entry.name, entry.status, entry.round, entry.rounds) == (id, "first", "finished", 6, 6)
    assert (entry.data, entry.partition, entry.algorithm) == ("digits", "classes:2", "fedavg")
    assert entry.accuracy == given[-1].accuracy
    assert Run(**entry.spec) == run
    assert entry.environment["torch"] == torch.__version__
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


@pytest.mark.parametrize("algorithm", ["fedavg", "fedavgm:0.9", "fedavgm:0.9,plain", "sgd"])
@pytest.mark.parametrize("seconds", [0.0, 1000.0], ids=["every round", "at the end"])
def test_a_run_that_was_left_goes_on_bit_for_bit(store, algorithm, seconds):
    run = small(algorithm=algorithm, divergence=algorithm != "sgd", participation=0.6, lr_decay=0.9)
    id = store.create(run)
    stop_after(store, id, 2, checkpoint_seconds=seconds)
    assert store.find(id).status == "interrupted"
    stop_after(store, id, 4, checkpoint_seconds=seconds)
    for _ in store.advance(id):
        pass
    assert rows(store, id) == expected(run)
    assert store.find(id).status == "finished"


def test_runs_brought_to_a_round_go_on_bit_for_bit(store):
    """Stopped after a round, together; then one of them goes on alone: its rows are those of a run never stopped."""
    runs = [small(eval_every=2, algorithm=algorithm, seed=seed) for seed, algorithm in enumerate(("fedavgm", "fedavg"))]
    ids = [store.create(run) for run in runs]
    given = [(id, row.round) for id, row in store.advance_together(ids, until=3, checkpoint_seconds=1000)]
    assert sorted(given) == sorted((id, t) for id in ids for t in (1, 2, 3))
    assert [(store.find(id).status, store.state(id)[0]) for id in ids] == [("interrupted", 3)] * 2
    assert list(store.advance_together(ids, until=2)) == []  # they are further than that
    assert [(store.find(id).status, store.state(id)[0]) for id in ids] == [("interrupted", 3)] * 2
    for _ in store.advance(ids[0], until=10):
        pass
    assert [store.find(id).status for id in ids] == ["finished", "interrupted"]
    for _ in store.advance(ids[1]):
        pass
    assert [rows(store, id) for id in ids] == [expected(run) for run in runs]


def test_a_run_that_is_over_gives_no_row(store):
    id = store.create(small(rounds=2))
    assert len(list(store.advance(id))) == 2
    before = store.find(id)
    assert list(store.advance(id)) == []
    assert store.find(id) == before


def test_a_run_stopped_at_its_last_row_is_finished(store):
    id = store.create(small(rounds=2))
    stop_after(store, id, 2)
    assert store.find(id).status == "finished"


def test_the_last_two_checkpoints_are_kept(store):
    id = store.create(small())
    for row in store.advance(id, checkpoint_seconds=0):
        kept = [c["round"] for c in store.checkpoints(id)]
        assert kept == [row.round, row.round - 1][: row.round]
        files = {p.name for p in (store.folder / id).iterdir()} - {"lock"}
        assert files == {checkpoint_name(r) for r in kept}


def test_a_costly_checkpoint_is_written_less_often(store, monkeypatch):
    monkeypatch.setattr("fedskew.store.recording.SHARE", 1e9)
    id = store.create(small())
    seen = []
    for _ in store.advance(id, checkpoint_seconds=1e-9):
        seen.append([c["round"] for c in store.checkpoints(id)])
    assert seen == [[1]] * 5 + [[6, 1]]


def flip_last_bit(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [flip_last_bit, lambda p: os.truncate(p, 100), lambda p: os.truncate(p, 0)])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(store, caplog, damage):
    run = small(algorithm="fedavgm:0.9")
    id = store.create(run)
    stop_after(store, id, 4, checkpoint_seconds=0)
    damage(store.folder / id / checkpoint_name(4))
    assert [row.round for row in store.advance(id)] == [4, 5, 6]
    assert "the checkpoint of round 4 cannot be used" in caplog.text
    assert "round 3 is used instead" in caplog.text
    assert rows(store, id) == expected(run)


def test_without_a_whole_checkpoint_the_run_starts_again(store, caplog):
    run = small()
    id = store.create(run)
    stop_after(store, id, 4, checkpoint_seconds=0)
    for round in (3, 4):
        flip_last_bit(store.folder / id / checkpoint_name(round))
    training = store.advance(id)
    assert next(training).round == 1
    assert "the run starts again" in caplog.text
    assert [r["round"] for r in store.records(id)] == [1]  # rows of a forgotten past would mix with the new ones
    assert [row.round for row in training] == [2, 3, 4, 5, 6]
    assert rows(store, id) == expected(run)


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


def test_divergence_ends_a_run_and_its_rows_stay(store):
    run = small(lr=1.0, weight_decay=1e4, rounds=20)
    id = store.create(run)
    given = list(store.advance(id, checkpoint_seconds=0))
    entry = store.find(id)
    assert given[-1].diverged
    assert entry.status == "diverged"
    assert f"in round {given[-1].round}" in entry.message
    assert [r["round"] for r in store.records(id)] == [row.round for row in given]
    assert 1 < len(given) < 20
    assert list(store.advance(id)) == []
    assert all(c["round"] < given[-1].round for c in store.checkpoints(id))


class Fragile(torch.nn.Module):
    """Fails once, the way a user's own network can."""

    calls = 0
    fails_at = 0

    def __init__(self, features, classes):
        super().__init__()
        self.layer = torch.nn.Linear(features, classes)

    def forward(self, x):
        Fragile.calls += 1
        if Fragile.calls == Fragile.fails_at:
            raise RuntimeError("a bug in the network")
        return self.layer(x.flatten(1))


def fragile(shape, classes):
    return Fragile(int(np.prod(shape)), classes)


def test_a_failure_is_written_down_and_can_be_resumed(store):
    run = small(model=fragile, batch=None)
    Fragile.calls, Fragile.fails_at = 0, 0
    whole = expected(run)
    Fragile.fails_at = Fragile.calls // 2
    Fragile.calls = 0
    id = store.create(run)
    with pytest.raises(RuntimeError, match="a bug in the network"):
        list(store.advance(id))
    entry = store.find(id)
    assert (entry.status, entry.message) == ("failed", "a bug in the network")
    assert 0 < entry.round < 6
    assert store.checkpoints(id)[0]["round"] == entry.round
    list(store.advance(id))
    assert rows(store, id) == whole
    assert store.find(id).message == ""


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


def test_one_trainer_at_a_time(store):
    id = store.create(small())
    training = store.advance(id)
    next(training)
    assert store.find(id).status == "running"
    with pytest.raises(FedskewError, match="is being trained by another process"):
        next(store.advance(id))
    with pytest.raises(FedskewError, match="is being trained by another process"):
        store.delete(id)
    assert [row.round for row in training] == [2, 3, 4, 5, 6]
    assert rows(store, id) == expected(small())


def test_a_patient_trainer_waits_for_the_one_before(store):
    id, taken = store.create(small()), threading.Event()

    def another():
        with store.alone(id):
            taken.set()
            time.sleep(1.5)  # longer than an impatient one would wait

    thread = threading.Thread(target=another)
    thread.start()
    taken.wait()
    with pytest.raises(FedskewError, match="is being trained by another process"):
        next(store.advance(id, patience=0))
    assert len(list(store.advance(id, patience=30))) == 6
    thread.join()
    assert rows(store, id) == expected(small())


def test_a_move_to_another_machine_is_said(store, caplog):
    id = store.create(small())
    stop_after(store, id, 2)
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("UPDATE runs SET environment = json_set(environment, '$.torch', '1.0') WHERE id = ?", (id,))
    list(store.advance(id))
    assert f"goes on elsewhere (torch 1.0 -> {torch.__version__})" in caplog.text


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can mount a small disk")
@pytest.mark.parametrize("every", [0.0, 1000.0], ids=["at a checkpoint", "at a row"])
def test_a_full_disk_loses_nothing(tmp_path, every):
    disk = tmp_path / "disk"
    disk.mkdir()
    # hidden layers make checkpoints large against rows; without checkpoints rows alone fill the rest
    run = Run(**SMALL | {"model": "mlp" if every == 0 else "softmax", "rounds": 2000, "batch": None, "seed": 3})
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        store = Store(disk)
        id = store.create(run)
        stop_after(store, id, 2, checkpoint_seconds=0)
        free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        (disk / "ballast").write_bytes(bytes(free - 100 * 1024))
        with pytest.raises(FedskewError, match=r"No space left on device|database or disk is full"):
            list(store.advance(id, checkpoint_seconds=every))
        with closing(sqlite3.connect(store.path)) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        kept = rows(store, id)
        assert len(kept) >= 2
        assert store.find(id).status in ("failed", "interrupted")
        assert store.state(id)[0] >= 2
        (disk / "ballast").unlink()
        stop_after(store, id, len(kept) + 1)
        assert rows(store, id)[: len(kept)] == kept
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can mount a disk")
def test_a_store_that_can_only_be_read_is_read(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        store = Store(disk)
        id = store.create(small())
        stop_after(store, id, 2)
        kept = rows(store, id)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        assert [e.status for e in store.runs()] == ["interrupted"]
        assert rows(store, id) == kept
        assert store.state(id)[0] == 2
        for use in (lambda: store.create(small()), lambda: next(store.advance(id)), lambda: store.delete(id)):
            with pytest.raises(
                FedskewError, match=r"Read-only file system|readonly database|cannot be (written|opened)"
            ):
                use()
    finally:
        subprocess.run(["umount", disk], check=True)
