"""A stopped run goes on bit for bit, from the newest checkpoint that is whole."""

import os
import sqlite3
from contextlib import closing
from functools import partial

import pytest
import torch
from small_runs import expected, rows, small, stop_after

from fedskew.store.entry import checkpoint_name

pytestmark = pytest.mark.usefixtures("one_thread")


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


class Struck(sqlite3.Connection):
    """Ctrl-C comes while this statement of a row is at work, and is heard as soon as it is done."""

    during, left = "", 0

    def execute(self, statement, *values):
        found = super().execute(statement, *values)
        if self.left and statement.startswith(self.during):
            Struck.left -= 1
            if not self.left:
                raise KeyboardInterrupt
        return found


@pytest.mark.parametrize("during", ["PRAGMA synchronous = NORMAL", "BEGIN", "INSERT OR REPLACE INTO rows", "COMMIT"])
def test_a_signal_while_a_row_is_written_down_costs_no_round(store, during, monkeypatch):
    run = small()
    id = store.create(run)
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Struck))
    monkeypatch.setattr(Struck, "during", during)
    training = store.advance(id, checkpoint_seconds=1000)
    next(training)
    monkeypatch.setattr(Struck, "left", 2)
    next(training)
    with pytest.raises(KeyboardInterrupt):
        next(training)
    assert (store.find(id).status, store.find(id).round) == ("interrupted", 3)
    assert [c["round"] for c in store.checkpoints(id)] == [3]
    for _ in store.advance(id):
        pass
    assert rows(store, id) == expected(run)


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


def test_a_move_to_another_machine_is_said(store, caplog):
    id = store.create(small())
    stop_after(store, id, 2)
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("UPDATE runs SET environment = json_set(environment, '$.torch', '1.0') WHERE id = ?", (id,))
    list(store.advance(id))
    assert f"goes on elsewhere (torch 1.0 -> {torch.__version__})" in caplog.text
