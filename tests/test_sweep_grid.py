"""A grid's file: what it makes, what it refuses, and the table of what came of it."""

import itertools
import statistics
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedskew import FedskewError, Run, Store, grid, sweep
from fedskew.report.records import settled
from fedskew.sweep import check

SMALL = {"model": "softmax", "examples": 200, "rounds": 2, "lr": 0.5, "clients": 4}

VALUES = {
    "partition": ["iid", "classes:2", "dirichlet:0.5"],
    "algorithm": ["fedavg", "fedavgm:0.9", "scaffold"],
    "lr": [0.01, 0.1, 1],
    "seed": [0, 1, 2],
    "batch": [5, 10, "full"],
}


LISTS = {key: st.lists(st.sampled_from(values), min_size=1, max_size=3) for key, values in VALUES.items()}


@given(st.fixed_dictionaries({}, optional=LISTS))
@settings(max_examples=30)
def test_a_grid_is_every_combination_once(lists):
    runs = grid.parse({"base": SMALL, "grid": lists})
    wanted = {Run(**SMALL | dict(zip(lists, chosen, strict=True))) for chosen in itertools.product(*lists.values())}
    assert set(runs) == wanted
    assert len(runs) == len(wanted)


def test_single_runs_stand_beside_the_grid_and_override_the_base():
    runs = grid.parse(
        {"base": SMALL, "grid": {"seed": [0, 1]}, "runs": [{"lr": 0.1}, {"algorithm": "sgd", "seed": [0, 1]}]}
    )
    assert runs == [
        *(Run(**SMALL, seed=seed) for seed in (0, 1)),
        Run(**SMALL | {"lr": 0.1}),
        *(Run(**SMALL, algorithm="sgd", seed=seed) for seed in (0, 1)),
    ]
    assert grid.parse({"base": SMALL, "runs": [{"lr": 0.1}]}) == [Run(**SMALL | {"lr": 0.1})]
    assert grid.parse({"base": SMALL}) == [Run(**SMALL)]


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"gird": {}}, "unknown key 'gird': the keys are base, grid, runs"),
        ({"grid": {"lrr": [0.1]}}, "unknown key 'lrr'"),
        ({"grid": {"lr": [0.1, -1]}}, "lr = -1: it should be greater than 0"),
        ({"grid": {"partition": ["klasses:1"]}}, "partition 'klasses:1' is not known"),
        ({"grid": {"lr": 0.1}}, "grid.lr = 0.1: it should be a list of values"),
        ({"grid": {"lr": []}}, "grid.lr = []: give at least one value"),
        ({"base": {"lr": [0.1]}}, "base.lr = [0.1]: a list of values goes into [grid]"),
        ({"runs": {"lr": 0.1}}, "it should be a list of tables"),
        ({"runs": [{"lr": 0.1}, {"seed": []}]}, "runs[1].seed = []"),
        ({"base": 3}, "base = 3: it should be a table"),
        ({"grid": {"seed": list(range(101)), "lr": [float(i) for i in range(1, 101)]}}, "more than 10,000 runs"),
    ],
)
def test_what_a_grid_refuses(document, says):
    with pytest.raises(FedskewError) as refused:
        grid.parse(document)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"partition": "emd:1.95"}, "emd:1.95 cannot be reached"),
        ({"cohort": 5}, "cohort = 5, but there are only 4 clients"),
        ({"model": "kws-cnn"}, "choose another model"),
        ({"start": "nowhere.safetensors"}, "there is no such file"),
    ],
)
def test_what_needs_the_data_is_found_before_anything_is_written(fields, says):
    store = Store()
    runs = [Run(**SMALL), Run(**SMALL | fields)]
    with pytest.raises(FedskewError, match=says):
        check.check(store, runs)
    assert store.runs() == []


def test_a_plan_that_fails_leaves_nothing_behind():
    store = Store()
    with pytest.raises(FedskewError, match=r"emd:1.95"):
        sweep.plan(store, [Run(**SMALL), Run(**SMALL | {"partition": "emd:1.95"})])
    assert store.runs() == []


def test_an_outline_writes_nothing_and_gives_every_hand_its_share():
    store = Store()
    runs = [Run(**SMALL, seed=seed, batch=batch) for batch in (10, 20) for seed in range(4)]
    known = sweep.outline(store, runs, hands=3)
    assert [len(group) for group in known.groups] == [3, 1, 3, 1]
    assert (known.rounds, known.finished) == (16, 0)
    assert [len(group) for group in sweep.outline(store, runs, at_once=4, hands=3).groups] == [4, 4]
    assert [len(group) for group in sweep.outline(store, runs).groups] == [4, 4]
    assert not store.folder.exists()
    _, groups = sweep.plan(store, runs[:2])
    list(sweep.train(store, groups))
    known = sweep.outline(store, [Run(**run.model_dump() | {"name": "again"}) for run in runs])
    assert (known.rounds, known.finished) == (12, 2)


def test_two_names_of_one_spec_are_one_run():
    store = Store()
    ids, groups = sweep.plan(store, [Run(**SMALL, name=name) for name in "ab"])
    assert ids[0] == ids[1]
    assert [group.ids for group in groups] == [ids[:1]]
    assert store.find(ids[0]).name == "a"


def test_a_large_grid_is_planned_in_a_moment():
    """Every stored run is looked at once, not once for each run of the grid."""
    store = Store()
    runs = [Run(**SMALL, seed=seed) for seed in range(300)]
    ids, _ = sweep.plan(store, runs)
    began = time.perf_counter()
    assert [entry.id for entry in store.alike(runs)] == ids
    taken = time.perf_counter() - began
    began = time.perf_counter()
    assert store.same(runs[7]).id == ids[7]
    assert taken < 20 * (time.perf_counter() - began)


def test_the_table_has_a_row_a_cell_with_the_mean_over_seeds():
    store = Store()
    wide = {"base": SMALL, "grid": {"partition": ["iid", "classes:1"], "clients": [2, 4], "seed": [0, 1]}}
    runs = grid.parse(wide | {"runs": [{"lr": 1e6, "weight_decay": 1e4, "rounds": 9}]})
    ids, groups = sweep.plan(store, runs[:-2] + runs[-1:])
    list(sweep.train(store, groups))
    ids.insert(-1, store.create(runs[-2]))  # the second seed of the fourth cell stays untrained
    cells = grid.cells(runs, ids)
    rows = grid.rows(store, cells)
    assert grid.varied(cells) == ["partition", "rounds", "lr", "weight_decay", "clients"]
    assert [(r["partition"], r["clients"], r["seeds"], r["unfinished"], r["diverged"]) for r in rows] == [
        ("iid", 2, 2, 0, 0),
        ("iid", 4, 2, 0, 0),
        ("classes:1", 2, 2, 0, 0),
        ("classes:1", 4, 1, 1, 0),
        ("iid", 4, 1, 0, 1),
    ]
    scores = [settled(store.records(id)) for id in ids[:2]]
    assert rows[0]["runs"] == ids[:2]
    assert rows[0]["accuracy"] == statistics.fmean(scores)
    assert rows[0]["std"] == statistics.stdev(scores)
    assert rows[3]["std"] is None
    assert rows[4]["accuracy"] == 0
    shown = grid.table(rows, grid.varied(cells), "a title").markdown()
    assert "| classes:1 | 2 | 0.5 | 0 | 4 |" in shown
    assert "unfinished" in shown
