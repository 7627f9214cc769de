"""Many runs into one store: together, none twice, and on from where they stopped."""

import pytest
import torch

from fedskew import Run, Store, sweep, train

SMALL = {"model": "softmax", "rounds": 4, "lr": 0.5, "clients": 5}


def runs_of(**more):
    """Two shapes: batches of 10 and of 20."""
    tens = [Run(**SMALL, partition="classes:2", seed=seed, **more) for seed in (0, 1)]
    return [*tens, Run(**SMALL, algorithm="fedavgm:0.9", **more), Run(**SMALL, batch=20, **more)]


def test_runs_of_one_shape_are_one_group_and_every_run_is_trained_as_alone():
    store = Store()
    runs = runs_of()
    ids, groups = sweep.plan(store, runs)
    assert [(group.ids, group.left) for group in groups] == [(ids[:3], 12), (ids[3:], 4)]
    seen = [(id, row.round) for id, row in sweep.train(store, groups)]
    assert sorted(seen) == sorted((id, t) for id in ids for t in (1, 2, 3, 4))
    for id, run in zip(ids, runs, strict=True):
        _, state = store.state(id)
        *_, last = train(run)
        torch.testing.assert_close(state["w"], last.state["w"], rtol=1e-4, atol=1e-6)
        assert store.find(id).status == "finished"
        assert store.evaluations(id)[-1][1] == pytest.approx(last.accuracy, abs=0.005)


def test_groups_can_be_kept_small():
    store = Store()
    runs = [Run(**SMALL, seed=seed) for seed in range(5)]
    ids, groups = sweep.plan(store, runs, at_once=2)
    assert [group.ids for group in groups] == [ids[:2], ids[2:4], ids[4:]]
    assert len(list(sweep.train(store, groups))) == 20


def test_runs_can_be_brought_to_a_round_and_on_from_it():
    store = Store()
    runs = [Run(**SMALL, seed=seed) for seed in range(3)]
    _, groups = sweep.plan(store, runs[:2], until=2)
    assert [(group.left, group.until) for group in groups] == [(4, 2)]
    assert [row.round for _, row in sweep.train(store, groups)] == [1, 1, 2, 2]
    ids, groups = sweep.plan(store, runs, until=2)
    assert [(group.ids, group.left) for group in groups] == [([ids[2]], 2)]
    _, groups = sweep.plan(store, runs, until=9)  # further than the last round
    assert [group.left for group in groups] == [2 + 2 + 4]
    list(sweep.train(store, groups))
    assert {store.find(id).status for id in ids} == {"finished"}


def test_what_the_store_has_is_not_trained_again():
    store = Store()
    runs = runs_of()
    ids, groups = sweep.plan(store, runs)
    list(sweep.train(store, groups))
    renamed = [Run(**run.model_dump() | {"name": "again"}) for run in runs]
    again, nothing = sweep.plan(store, [*renamed, runs[0]])
    assert again == [*ids, ids[0]]
    assert nothing == []
    assert list(sweep.train(store, nothing)) == []
    other, left = sweep.plan(store, [Run(**runs[0].model_dump() | {"seed": 7})])
    assert other[0] not in ids
    assert left[0].left == 4


def test_a_sweep_that_was_stopped_goes_on_where_each_run_was():
    store = Store()
    runs = runs_of()[:3]
    ids, groups = sweep.plan(store, runs)
    rows = sweep.train(store, groups, checkpoint_seconds=0)
    for _ in range(7):  # in the middle of the third round
        next(rows)
    rows.close()
    assert [store.find(id).round for id in ids] == [3, 2, 2]
    assert {store.find(id).status for id in ids} == {"interrupted"}
    again, rest = sweep.plan(store, runs)
    assert again == ids
    assert rest[0].left == 5
    seen = sorted((ids.index(id), row.round) for id, row in sweep.train(store, rest))
    assert seen == [(0, 4), (1, 3), (1, 4), (2, 3), (2, 4)]
    for id, run in zip(ids, runs, strict=True):
        assert [r["round"] for r in store.records(id)] == [1, 2, 3, 4]
        _, state = store.state(id)
        *_, last = train(run)
        torch.testing.assert_close(state["w"], last.state["w"], rtol=1e-4, atol=1e-6)


def test_a_run_that_diverges_ends_alone():
    store = Store()
    bad, good = (Run(**SMALL | {"lr": lr, "rounds": 30}, weight_decay=1e4) for lr in (1.0, 1e-6))
    ids, groups = sweep.plan(store, [bad, good])
    assert len(groups) == 1
    list(sweep.train(store, groups))
    assert [store.find(id).status for id in ids] == ["diverged", "finished"]


def test_time_is_shared_by_runs_that_train_abreast():
    """Rows say what a run cost: two together do not count the same second twice."""
    import time

    began = time.perf_counter()
    total = sum(row.seconds for run in runs_of()[:3] for row in train(run))
    assert 0 < total <= time.perf_counter() - began
    store = Store()
    _, groups = sweep.plan(store, runs_of()[:3])
    began = time.perf_counter()
    seconds = [row.seconds for _, row in sweep.train(store, groups)]
    assert 0 < sum(seconds) <= time.perf_counter() - began
    assert min(seconds) > 0
