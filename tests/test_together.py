"""Several runs as one: each has the rows that it would have alone."""

import pytest
import torch

from fedskew import Run, experiment, train, train_together
from fedskew.engine import abreast, choose, stacked
from fedskew.engine.problem import Trained
from fedskew.errors import FedskewError
from fedskew.rounds import rounds

SMALL = {"data": "digits", "model": "softmax", "batch": 10, "rounds": 3}


def rows_of(runs, **how):
    rows = [[] for _ in runs]
    for i, row in train_together(runs, **how):
        rows[i].append(row)
    return rows


@pytest.mark.parametrize("engine", ["stacked", "threaded", "loop", "auto"])
def test_fused_rows_are_those_of_each_run_alone(engine):
    runs = [
        Run(**SMALL, seed=0, lr=0.5),
        Run(**SMALL, seed=1, partition="classes:1", clients=4, algorithm="fedavgm:0.9"),
        Run(**SMALL | {"rounds": 2}, seed=2, partition="dirichlet:0.1", clients=20, cohort=3, divergence=True),
        Run(**SMALL, algorithm="sgd", examples=300),
    ]
    for run, together in zip(runs, rows_of(runs, engine=engine), strict=True):
        alone = list(train(run, engine=engine))
        assert [row.round for row in together] == [row.round for row in alone]
        for a, b in zip(together, alone, strict=True):
            assert a.loss == pytest.approx(b.loss, rel=1e-5)
            assert a.accuracy == pytest.approx(b.accuracy, abs=3e-3)
            assert (a.examples, a.clients, a.lr, a.emd) == (b.examples, b.clients, b.lr, b.emd)
            torch.testing.assert_close(a.state["w"], b.state["w"], rtol=1e-4, atol=1e-5)


def test_runs_of_another_shape_are_refused():
    with pytest.raises(FedskewError, match="differ in batch, epochs; train them apart"):
        next(train_together([Run(**SMALL), Run(**SMALL | {"batch": 20, "epochs": 2})]))


def test_no_runs_give_no_rows():
    assert list(train_together([])) == []


def test_a_cohort_that_does_not_fit_is_trained_in_parts_with_the_same_result(monkeypatch):
    """Memory for three clients at a time: the real computation, refused as a GPU would refuse it."""
    most = 3
    asked = []

    def tight(problem):
        def many(tasks) -> list[Trained]:
            clients = sum(len(task.cohort) for task in tasks)
            asked.append(clients)
            if clients > most:
                raise torch.OutOfMemoryError
            return stacked.many(problem, tasks)

        return choose.Fitting(many)

    runs = [Run(**SMALL, clients=7), Run(**SMALL, clients=2, seed=1)]
    whole = rows_of(runs, engine="stacked")
    monkeypatch.setattr("fedskew.experiment.many_of", lambda problem, engine: tight(problem))
    parts = rows_of(runs)
    assert max(asked[len(asked) // 2 :]) <= most  # it learns what fits and stops trying more
    for a, b in zip(whole, parts, strict=True):
        torch.testing.assert_close(a[-1].state["w"], b[-1].state["w"], rtol=1e-5, atol=1e-6)


def test_one_client_too_many_is_one_line():
    def never(tasks):
        raise torch.OutOfMemoryError

    run = Run(**SMALL, clients=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedskew.experiment.many_of", lambda problem, engine: choose.Fitting(never))
        with pytest.raises(FedskewError, match="lower batch"):
            next(train(run))


def test_runs_of_very_different_length_are_not_padded_to_each_other(monkeypatch):
    """A run with a quarter more steps trains apart, every round, and has the rows it would have alone."""
    seen = []
    original = choose.many_of

    def watched(problem, engine):
        many = original(problem, engine)
        return lambda tasks: seen.append(sorted(task.cohort.index.shape[1] for task in tasks)) or many(tasks)

    monkeypatch.setattr("fedskew.experiment.many_of", watched)
    runs = [Run(**SMALL, clients=10, examples=n, seed=n) for n in (500, 510, 1200)]
    together = rows_of(runs)
    assert seen == [[5, 6], [12]] * 3
    for run, rows in zip(runs, together, strict=True):
        assert rows[-1].loss == pytest.approx(list(train(run))[-1].loss, rel=1e-5)


def before_training(monkeypatch, do):
    """Have something done each time that tasks are about to be trained."""

    def watched(problem, engine):
        many = choose.many_of(problem, engine)
        return lambda tasks: (do(), many(tasks))[1]

    monkeypatch.setattr(experiment, "many_of", watched)


@pytest.fixture
def ahead(monkeypatch):
    """Rows as a GPU's are given: after the next round has been queued."""
    monkeypatch.setattr(experiment, "rounds", lambda lab, at, ahead: rounds(lab, at, ahead=True))


EVERY_THIRD = SMALL | {"rounds": 7, "eval_every": 3, "partition": "dirichlet:0.5", "clients": 12, "participation": 0.4}
AHEAD = [
    Run(**EVERY_THIRD, algorithm="fedavgm:0.9", seed=1),
    Run(**EVERY_THIRD, algorithm="fedavg,swa=0.5"),
    Run(**EVERY_THIRD, algorithm="scaffold", lr=0.05),  # which remembers something of every client
    Run(**EVERY_THIRD, divergence=True),
    Run(**EVERY_THIRD, algorithm="sgd"),
    Run(**EVERY_THIRD | {"rounds": 4}, warm_up="rounds=2,fraction=0.2"),
    Run(**EVERY_THIRD, lr=1e38),  # which diverges
]


def test_rows_that_come_a_round_later_are_the_same(request):
    soon = rows_of(AHEAD)
    request.getfixturevalue("ahead")
    later = rows_of(AHEAD)
    assert soon[-1][-1].diverged
    assert soon[-1][-1].round % 3  # in a round that would not have been evaluated
    for a, b in zip(soon, later, strict=True):
        assert [row.round for row in a] == [row.round for row in b]
        for x, y in zip(a, b, strict=True):
            same = x.record() | {"seconds": 0.0}, y.record() | {"seconds": 0.0}
            assert repr(same[0]) == repr(same[1])  # NaN is not equal to itself
            torch.testing.assert_close(x.state, y.state, rtol=0, atol=0, equal_nan=True)


def test_a_row_that_comes_a_round_later_can_be_gone_on_from(ahead):
    whole = list(train(AHEAD[0]))
    row = next(row for row in train(AHEAD[0]) if row.round == 4)
    rest = list(train(AHEAD[0], start=row.state, first_round=5))
    assert [r.round for r in rest] == [5, 6, 7]
    torch.testing.assert_close(rest[-1].state, whole[-1].state, rtol=0, atol=0)


def test_a_row_waits_for_the_next_round_to_be_queued_unless_it_is_evaluated(ahead, monkeypatch):
    told = []
    before_training(monkeypatch, lambda: told.append("task"))
    for row in train(AHEAD[0]):
        told.append(row.round)
    assert told == ["task", "task", 1, "task", 2, 3, "task", "task", 4, "task", 5, 6, "task", 7]


def test_seconds_of_runs_that_train_together_add_up_to_what_all_of_them_took(monkeypatch):
    """One of them warms up while the others go through all their rounds."""
    seconds = []
    before_training(monkeypatch, lambda: seconds.append(1.0))
    monkeypatch.setattr(abreast.time, "perf_counter", lambda: sum(seconds))
    rows = rows_of([Run(**SMALL), Run(**SMALL, seed=1), Run(**SMALL, warm_up="rounds=9,fraction=0.2")])
    assert sum(row.seconds for each in rows for row in each) == pytest.approx(sum(seconds))
    assert rows[2][0].seconds > rows[1][0].seconds > 0
