"""Several runs as one: each has the rows that it would have alone."""

import pytest
import torch

from fedskew import Run, experiment, train, train_together
from fedskew.engine import abreast, choose, stacked
from fedskew.engine.problem import Trained
from fedskew.errors import FedskewError

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


def test_seconds_of_runs_that_train_together_add_up_to_what_all_of_them_took(monkeypatch):
    """One of them warms up while the others go through all their rounds."""
    seconds = []
    before_training(monkeypatch, lambda: seconds.append(1.0))
    monkeypatch.setattr(abreast.time, "perf_counter", lambda: sum(seconds))
    rows = rows_of([Run(**SMALL), Run(**SMALL, seed=1), Run(**SMALL, warm_up="rounds=9,fraction=0.2")])
    assert sum(row.seconds for each in rows for row in each) == pytest.approx(sum(seconds))
    assert rows[2][0].seconds > rows[1][0].seconds > 0
