"""Warm-up on the shared set or a part of the data, and validation splits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedskew.data import datasets
from fedskew.experiment import train, train_together
from fedskew.run import Run
from fedskew.sides import split
from fedskew.store import Store
from prepared_runs import DIGITS, SHARED, SMALL, first, lab_of, plain, same

pytestmark = pytest.mark.usefixtures("one_thread")


# warm-up


def test_warm_up_trains_on_g_and_nothing_else():
    lab = lab_of(Run(**SHARED, warm_up=0.6))
    for t in (1, 2):
        cohort = lab.warm_up(t)
        assert len(cohort) == 1
        assert np.array_equal(np.sort(cohort.index[cohort.mask].numpy()), lab.shared)
    assert not torch.equal(lab.warm_up(1).index, lab.warm_up(2).index)  # in a new order each time
    assert cohort.index.shape[2] == 10


def test_warm_up_on_a_part_of_the_whole_training_set():
    run = Run(**SMALL | {"partition": "iid"}, warm_up="rounds=2,fraction=0.1", holdout=0.2)
    lab = lab_of(run)
    assert lab.shared is None
    assert len(lab.warm) == len({*lab.warm.tolist()}) == round(0.1 * len(DIGITS.y))
    private = np.concatenate(lab.parts)
    assert 0.7 < np.isin(lab.warm, private).mean() < 0.9  # the clients hold four fifths of it
    row = first(run)
    assert row.examples == 2 * len(lab.warm)
    assert row.prepared == {"warm_up": {"passes": 2, "accuracy": None, "examples": row.examples}}
    assert row.bytes_down == 0


def test_warm_up_is_sgd_on_g_and_federated_training_starts_there():
    """Against a run of one client who holds exactly G, in full batches, where no order matters."""
    run = Run(**SHARED | {"batch": None, "rounds": 1}, warm_up="rounds=3")
    lab = lab_of(run)
    alone = datasets.from_arrays(DIGITS.x[lab.shared], DIGITS.y[lab.shared], DIGITS.x_test, DIGITS.y_test)
    options = {"model": "softmax", "lr": 0.5, "batch": None, "clients": 1, "rounds": 3, "transform": "scale"}
    *_, last = train(Run(**options), data=alone)
    warmed = first(run)
    torch.testing.assert_close(warmed.state["w"], last.state["w"], rtol=1e-5, atol=1e-6)
    assert warmed.accuracy == pytest.approx(last.accuracy, abs=0.005)
    assert warmed.loss == pytest.approx(last.loss, rel=1e-4)
    rounds = list(train(run))
    by_hand = list(train(run.model_copy(update={"warm_up": None}), initial=warmed.state["w"]))
    assert same(rounds[-1].state["w"], by_hand[-1].state["w"])
    beside = first(run.model_copy(update={"divergence": True})).state
    assert same(beside["sgd.w"], beside["w"])  # and so does the SGD that it is compared with


def test_warm_up_stops_at_its_accuracy_or_after_its_passes():
    reached = first(Run(**SHARED, warm_up=0.6)).prepared["warm_up"]
    assert reached["accuracy"] >= 0.6
    assert reached["examples"] == 111 * reached["passes"]
    before = Run(**SHARED, warm_up=f"rounds={reached['passes'] - 1}")
    lab = lab_of(Run(**SHARED, warm_up=0.6))
    w = first(before).state["w"]
    logits = torch.nn.functional.linear(lab.rest.x.flatten(1).float() / 255, w["fc.weight"], w["fc.bias"])
    assert (logits.argmax(dim=1) == lab.rest.y).float().mean() < 0.6  # one pass less was not enough
    assert first(Run(**SHARED, warm_up="1.0,most=3")).prepared["warm_up"]["passes"] == 3
    assert first(Run(**SHARED, warm_up="rounds=4")).prepared["warm_up"]["passes"] == 4


def test_warm_up_is_reproducible():
    run = Run(**SHARED, warm_up=0.6)
    one, two = first(run), first(run)
    assert plain(one) == plain(two)
    assert same(one.state["w"], two.state["w"])
    assert plain(first(Run(**SHARED, warm_up=0.6, seed=1))) != plain(one)


@pytest.mark.parametrize(
    ("fields", "side"),
    [
        ({"share": "beta=0.1"}, "held"),
        ({"share": "beta=0.249"}, "clients"),  # G is all of the holdout but one
        ({"warm_up": "0.5,fraction=0.1"}, "clients"),
        ({"warm_up": "0.5,fraction=0.1", "holdout": 0.2}, "held"),
    ],
)
def test_warm_up_is_scored_on_fresh_training_examples_and_never_on_the_test_set(fields, side):
    run = Run(**SMALL | {"warm_up": 0.5} | fields)
    lab = lab_of(run)
    where = {x.tobytes(): i for i, x in enumerate(DIGITS.x)}  # no two digits are alike
    scored = {where[x.numpy().tobytes()] for x in lab.rest.x}
    assert len(scored) == len(lab.rest.x) >= 50
    assert not scored & {*lab.warm.tolist()}
    private = {*np.concatenate(split(run, DIGITS)).tolist()}
    assert bool(scored & private) == (side == "clients")
    other = datasets.from_arrays(DIGITS.x, DIGITS.y, 255 - DIGITS.x_test, (DIGITS.y_test + 1) % 10)
    a, b = (first(run.model_copy(update={"transform": "scale"}), data=data) for data in (DIGITS, other))
    assert a.prepared == b.prepared
    assert a.accuracy != b.accuracy


def test_warm_up_that_diverges_ends_the_run():
    rows = list(train(Run(**SHARED | {"model": "mlp", "lr": 1e30}, warm_up=0.9)))
    assert [row.round for row in rows] == [0]
    assert rows[0].diverged
    assert rows[0].prepared["warm_up"]["passes"] < 5  # it does not go on for a hundred
    store = Store()
    id = store.create(Run(**SHARED | {"model": "mlp", "lr": 1e30}, warm_up=0.9))
    assert len(list(store.advance(id))) == 1
    assert (store.find(id).status, store.find(id).message) == (
        "diverged",
        "the training loss was nan in round 0; lower lr",
    )


# validation


@pytest.mark.parametrize("remedy", [{}, {"share": "beta=0.1", "warm_up": "0.5,fraction=0.1"}], ids=["plain", "shared"])
def test_a_validation_split_is_nobodys_and_is_what_is_scored(remedy):
    run = Run(**SMALL | {"partition": "iid"}, validation=0.25, **remedy)
    lab = lab_of(run)
    assert len(lab.test.y) == round(0.25 * len(DIGITS.y))
    where = {x.tobytes(): i for i, x in enumerate(DIGITS.x)}
    scored = {where[x.numpy().tobytes()] for x in lab.test.x}
    used = {*np.concatenate([lab.part(k) for k in range(10)]).tolist()}
    used |= {*np.concatenate([lab.warm if lab.warm is not None else []]).astype(int).tolist()}
    used |= set() if lab.rest is None else {where[x.numpy().tobytes()] for x in lab.rest.x}
    assert not scored & used
    other = datasets.from_arrays(DIGITS.x, DIGITS.y, 255 - DIGITS.x_test, (DIGITS.y_test + 1) % 10)
    run = run.model_copy(update={"transform": "scale"})
    assert [plain(row) for row in train(run)] == [plain(row) for row in train(run, data=other)]
    assert first(run).accuracy != first(run.model_copy(update={"validation": 0.0})).accuracy


def test_runs_that_train_together_are_each_scored_on_their_own_validation_split():
    runs = [Run(**SMALL, validation=0.2, seed=seed) for seed in (0, 1)] + [Run(**SMALL)]
    together = {0: [], 1: [], 2: []}
    for i, row in train_together(runs):
        together[i].append((row.accuracy, row.test_loss))
    for i, run in enumerate(runs):
        for (accuracy, loss), row in zip(together[i], train(run), strict=True):
            assert accuracy == pytest.approx(row.accuracy, abs=1e-3)
            assert loss == pytest.approx(row.test_loss, rel=1e-4)
