"""Real processes, really killed: what was saved stays whole, and a run goes on as if nothing had happened."""

import multiprocessing
import os
import random
import sqlite3
import time
from contextlib import closing

import pytest
import torch
from small_runs import SMALL

from fedskew.errors import FedskewError
from fedskew.rounds import Row
from fedskew.run import Run
from fedskew.store import Store, checkpoints, database
from fedskew.store.recording import Recording, newest
from stopped import ENDLESS, further

pytestmark = pytest.mark.skipif(os.name == "nt", reason="kill -9 is a thing of POSIX")

# One server imports torch once; every process below is a fresh fork of it, started in milliseconds.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["fedskew.store.origin", "fedskew.store.recording", "torch._dynamo", "pytest"])


class Child:
    """A process that reports through its own pipe, which dies with it."""

    def __init__(self, work, *args):
        self.reports, its_end = PROCESSES.Pipe(duplex=False)
        self.process = PROCESSES.Process(target=work, args=(its_end, *args), daemon=True)
        self.process.start()
        its_end.close()

    def next(self):
        """The next report, or None once the process has gone."""
        try:
            return self.reports.recv()
        except EOFError:
            return None

    def kill(self):
        self.process.kill()
        return self.end()

    def end(self):
        """All that it still said; the process is gone after this."""
        said = list(iter(self.next, None))
        self.process.join(60)
        assert self.process.exitcode is not None
        self.process.close()
        self.reports.close()
        return said


def state(round):
    """8 MB, so that most of a writer's life is spent in the middle of a file."""
    return {"w": {"x": torch.full((2_000_000,), float(round))}, "stats": {}}


def row(round):
    scores = {"accuracy": None, "test_loss": None, "per_class": None, "divergence": None}
    sizes = {"clients": 1, "examples": 1, "bytes_up": 1, "bytes_down": 1}
    return Row(round=round, lr=1.0, loss=1.0, emd=0.0, seconds=1.0, state=state(round), **scores, **sizes)


def write_checkpoints(reports, folder, run, first):
    torch.set_num_threads(1)
    store = Store(folder)
    with database.writing(store.path) as db:
        recording = Recording(db, store.path, run, store.folder / run, 10**6, 0.0)
        reports.send("ready")
        for round in range(first, 10**6):
            recording.checkpoint(row(round))
            reports.send(round)


def test_killed_while_writing_checkpoints(tmp_path):
    chance = random.Random(0)
    store = Store(tmp_path / "store")
    run = store.create(Run(**SMALL))
    home = store.folder / run
    home.mkdir()
    reached, kills, in_the_middle = 0, 0, 0
    while kills < 30 or in_the_middle < 3:  # or the kills came at easy moments
        kills += 1
        assert kills <= 200
        child = Child(write_checkpoints, store.folder, run, reached + 1)
        assert child.next() == "ready"
        said = [child.next()] if kills % 2 else []  # a busy machine may not get so far in what follows
        time.sleep(chance.uniform(0, 0.2))
        said += child.kill()
        reported = max(said, default=reached)
        in_the_middle += any(home.glob("*.tmp"))
        with database.reading(store.path) as db:
            assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
            reached, found = newest(db, run, home)
            saved = [c["round"] for c in store.checkpoints(run)]
        assert reached == (saved or [0])[0]  # the newest one that is vouched for is whole, and so ...
        assert reached - reported in (0, 1)  # ... is everything that was reported as saved
        if found:
            assert torch.equal(found["w"]["x"], state(reached)["w"]["x"])
        for round in saved:
            assert checkpoints.read(home, round, dict(sums(store, run))[round])
    assert reached > 2
    child = Child(write_checkpoints, store.folder, run, reached + 1)
    assert [child.next(), child.next()] == ["ready", reached + 1]
    child.kill()
    assert len(list(home.glob("*.safetensors"))) <= 3  # two, and one more that was renamed but not yet vouched for


def sums(store, run):
    return [(c["round"], c["sha256"]) for c in store.checkpoints(run)]


def advance(reports, folder, id, every):
    torch.set_num_threads(1)
    try:
        for row in Store(folder).advance(id, checkpoint_seconds=every):
            reports.send(row.round)
    except FedskewError as e:
        reports.send(str(e))


def create_and_advance(reports, folder, fields):
    torch.set_num_threads(1)
    store, run = Store(folder), Run(**fields)
    ids = [store.create(run) for _ in range(40)]
    for _ in store.advance(ids[0], checkpoint_seconds=0):
        pass
    reports.send(ids)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [{"algorithm": "fedavg", "divergence": True}, {"algorithm": "fedavgm:0.9"}, {"algorithm": "sgd"}],
    ids=lambda method: method["algorithm"],
)
def test_killed_while_training_again_and_again(tmp_path, method):
    chance = random.Random(1)
    run = Run(**SMALL, rounds=ENDLESS, participation=0.6, lr_decay=0.99, **method)
    store = Store(tmp_path / "killed")
    id = store.create(run)
    for _ in range(8):
        child = Child(advance, store.folder, id, 0.0)
        first = last = child.next()
        wanted = chance.randint(0, 5)
        while last is not None and last < first + wanted:
            last = child.next()
        time.sleep(chance.uniform(0, 0.03))
        child.kill()
        assert store.find(id).status == "interrupted"  # nobody was left to say so, but the lock is free
    found, expected = further(store, [run], Store(tmp_path / "whole"))
    assert found == expected


def test_killed_without_a_checkpoint_starts_again(tmp_path):
    store = Store(tmp_path / "store")
    id = store.create(Run(**SMALL, rounds=ENDLESS))
    child = Child(advance, store.folder, id, 1000.0)
    while child.next() != 3:
        pass
    child.kill()
    assert len(store.records(id)) >= 3  # rows outlive the process, too
    child = Child(advance, store.folder, id, 1000.0)
    assert [child.next() for _ in range(5)] == [1, 2, 3, 4, 5]
    child.kill()


def test_three_processes_share_a_store(tmp_path):
    folder = tmp_path / "store"  # not made yet: they also race to create it
    fields = [SMALL | {"rounds": 100, "batch": None, "clients": 2, "eval_every": 10, "seed": s} for s in range(3)]
    children = [Child(create_and_advance, folder, f) for f in fields]
    created = [ids for child in children for ids in child.end()]
    store = Store(folder)
    assert sorted(id for ids in created for id in ids) == sorted(e.id for e in store.runs())
    assert len(store.runs()) == 3 * 40
    for id, *_ in created:
        assert [r["round"] for r in store.records(id)] == list(range(1, 101))
        assert store.find(id).status == "finished"
    with closing(sqlite3.connect(store.path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_second_process_is_refused_until_the_first_is_dead(tmp_path):
    store = Store(tmp_path / "store")
    id = store.create(Run(**SMALL, rounds=ENDLESS))
    first = Child(advance, store.folder, id, 0.0)
    assert first.next() == 1
    (refusal,) = Child(advance, store.folder, id, 0.0).end()
    assert "is being trained by another process" in refusal
    with pytest.raises(FedskewError, match="is being trained by another process"):
        store.delete(id)
    assert store.find(id).status == "running"
    first.kill()
    assert store.find(id).status == "interrupted"
    second = Child(advance, store.folder, id, 0.0)
    assert second.next() > 1
    second.kill()
    store.delete(id)
    assert store.runs() == []
