"""What ends a run badly: divergence, errors, another trainer, a full disk; its rows stay."""

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

from fedskew.errors import FedskewError
from fedskew.run import Run
from fedskew.store import Store

pytestmark = pytest.mark.usefixtures("one_thread")


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


@pytest.mark.parametrize("every", [0.0, 1000.0], ids=["at a checkpoint", "at a row"])
def test_a_full_disk_loses_nothing(disk, every):
    # hidden layers make checkpoints large against rows; without checkpoints rows alone fill the rest
    run = Run(**SMALL | {"model": "mlp" if every == 0 else "softmax", "rounds": 2000, "batch": None, "seed": 3})
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


def test_a_store_that_can_only_be_read_is_read(disk):
    store = Store(disk)
    id = store.create(small())
    stop_after(store, id, 2)
    kept = rows(store, id)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    assert [e.status for e in store.runs()] == ["interrupted"]
    assert rows(store, id) == kept
    assert store.state(id)[0] == 2
    for use in (lambda: store.create(small()), lambda: next(store.advance(id)), lambda: store.delete(id)):
        with pytest.raises(FedskewError, match=r"Read-only file system|readonly database|cannot be (written|opened)"):
            use()
