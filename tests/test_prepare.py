"""Laws of the prepare seam: who gets which example before the first round, what it costs, and where training starts."""

from __future__ import annotations

import json
from contextlib import closing

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedskew import measure, prepare, rng
from fedskew.data import datasets
from fedskew.errors import FedskewError
from fedskew.experiment import train, train_together
from fedskew.laboratory import Laboratory
from fedskew.prepare import Share, WarmUp, hold_out, mixed_emd, parse_share, parse_warm_up
from fedskew.run import Run
from fedskew.sides import shared_set, split
from fedskew.store import Store

pytestmark = pytest.mark.usefixtures("one_thread")

DIGITS = datasets.load("digits")
SMALL = {"data": "digits", "model": "softmax", "rounds": 2, "lr": 0.5, "partition": "classes:1", "clients": 10}
SHARED = SMALL | {"share": "beta=0.1,alpha=0.5"}


def lab_of(run, data=DIGITS):
    return Laboratory.of(run, data, "cpu", "loop", "fp32")


def first(run, **options):
    with closing(train(run, **options)) as rows:
        return next(rows)


def plain(row):
    return {key: value for key, value in json.loads(json.dumps(row.record())).items() if key != "seconds"}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


labels = st.lists(st.integers(0, 4), min_size=5, max_size=120).map(np.array)


# the holdout


@given(labels, st.floats(0, 0.99), st.integers(0, 9))
def test_a_holdout_is_a_stratified_part_and_the_rest_is_kept(y, fraction, seed):
    kept, held = hold_out(y, fraction, rng.stream(seed, "h"))
    assert np.array_equal(np.sort(np.concatenate([kept, held])), np.arange(len(y)))
    assert len(held) == round(fraction * len(y))
    share = len(held) / len(y)
    for c in range(5):
        assert abs((y[held] == c).sum() - share * (y == c).sum()) <= 1
    assert np.array_equal(held, hold_out(y, fraction, rng.stream(seed, "h"))[1])


def test_which_examples_are_held_out_is_random():
    y = np.arange(1000) % 10
    one, two = (set(hold_out(y, 0.2, rng.stream(seed, "h"))[1].tolist()) for seed in (0, 1))
    assert 10 < len(one & two) < 100  # 40 by chance
    assert set(hold_out(y, 0.0, rng.stream(0, "h"))[1]) == set()


def test_every_run_that_holds_out_has_the_same_clients():
    """A comparison of shared and unshared: clients' own data do not change."""
    plain_parts = split(Run(**SMALL, holdout=0.2), DIGITS)
    shared_parts = split(Run(**SHARED, warm_up=0.6), DIGITS)
    assert all(np.array_equal(a, b) for a, b in zip(plain_parts, shared_parts, strict=True))
    assert sum(map(len, split(Run(**SMALL | {"partition": "iid"}), DIGITS))) == len(DIGITS.y)


# the shared set


@given(labels, st.integers(0, 9), st.data())
def test_a_shared_set_is_as_even_over_classes_as_the_holdout_allows(y, seed, data):
    wanted = data.draw(st.integers(5, len(y)))
    share = Share(beta=1.0)
    drawn = share.draw(y, wanted, 5, rng.stream(seed, "g"))
    assert len(drawn) == len({*drawn.tolist()}) == wanted
    assert np.array_equal(drawn, np.sort(drawn))
    have, got = np.bincount(y, minlength=5), np.bincount(y[drawn], minlength=5)
    unspent = got[got < have]
    if len(unspent):
        # a class that could give more has as many as any other, to within one
        assert unspent.min() >= got.max() - 1
    assert np.array_equal(drawn, share.draw(y, wanted, 5, rng.stream(seed, "g")))


@given(st.integers(0, 5), st.sampled_from([0.05, 0.1, 0.2]), st.sampled_from([0.1, 0.5, 1.0]))
def test_g_has_beta_of_d_from_the_holdout_and_meets_nobodys_own_examples(seed, beta, alpha):
    run = Run(**SMALL, share=Share(beta=beta, alpha=alpha), seed=seed)
    lab = lab_of(run)
    private = np.concatenate(lab.parts)
    assert len(lab.shared) == round(beta * len(private))
    counts = np.bincount(DIGITS.y[lab.shared], minlength=10)
    assert counts.max() - counts.min() <= 1
    assert not np.intersect1d(lab.shared, private).size
    everything = np.concatenate([*split(run.model_copy(update={"partition": Run().partition}), DIGITS)])
    assert not np.intersect1d(lab.shared, everything).size  # nor what a partition left over


def test_what_clients_train_on_is_their_own_data_and_their_own_part_of_g():
    """The index arrays that the engine is given."""
    run = Run(**SHARED, cohort=4)
    lab = lab_of(run)
    _, cohort = lab.prepared(1)
    extras = []
    for k, index, mask in zip(cohort.clients, cohort.index, cohort.mask, strict=True):
        trained = index[mask].numpy()
        own = lab.parts[k]
        assert len(trained) == len({*trained.tolist()}) == len(own) + 56  # 56 = round(0.5 * 111)
        assert np.isin(own, trained).all()
        extra = np.setdiff1d(trained, own)
        assert len(extra) == 56
        assert np.isin(extra, lab.shared).all()
        extras.append(tuple(extra.tolist()))
    assert len(set(extras)) == 4
    later = lab.cohort(7, np.array(cohort.clients))
    for index, mask, same_index, same_mask in zip(cohort.index, cohort.mask, later.index, later.mask, strict=True):
        assert {*index[mask].tolist()} == {*same_index[same_mask].tolist()}  # the same part in every round
    private = np.concatenate(lab.parts)
    for k in range(10):
        assert not np.isin(lab.part(k)[len(lab.parts[k]) :], private).any()


def test_clients_draws_are_reproducible_and_follow_the_seed():
    one, again = lab_of(Run(**SHARED)), lab_of(Run(**SHARED))
    other = lab_of(Run(**SHARED, seed=1))
    assert all(np.array_equal(one.part(k), again.part(k)) for k in range(10))
    assert not np.array_equal(np.sort(one.shared), np.sort(other.shared))


def test_the_matched_sgd_sees_the_shared_examples_as_often_as_the_clients():
    lab = lab_of(Run(**SHARED, divergence=True))
    pool = lab.pool(1, np.arange(10))
    held = np.concatenate([lab.part(k) for k in range(10)])
    assert np.array_equal(np.sort(pool.index[pool.mask].numpy()), np.sort(held))


def test_divergence_shrinks_with_sharing():
    apart = list(train(Run(**SMALL, holdout=0.2, divergence=True)))[-1].divergence["relative"]["total"]
    rows = list(train(Run(**SHARED, divergence=True)))
    assert rows[0].divergence is None
    assert 0 < rows[-1].divergence["relative"]["total"] < apart


# EMD, predicted and realised


@given(
    st.integers(2, 6).flatmap(
        lambda c: st.lists(st.lists(st.integers(0, 20), min_size=c, max_size=c).filter(any), min_size=1, max_size=6)
    ),
    st.integers(1, 8),
)
def test_the_predicted_emd_of_a_mix_is_the_realised_one_when_all_of_g_is_received(counts, each):
    """Counts as examples: client after client, then G with `each` examples of every class."""
    table = np.array(counts)
    c = table.shape[1]
    y = np.concatenate([np.repeat(np.arange(c), row) for row in table] + [np.repeat(np.arange(c), each)])
    parts = np.split(np.arange(len(y)), np.cumsum(table.sum(axis=1)))
    *own, shared = parts
    mixed = [Share(beta=1.0).merged(part, shared, rng.stream(0, "share", k)) for k, part in enumerate(own)]
    realised = prepare.realised_emd(y, mixed, table.sum(axis=0))
    np.testing.assert_allclose(mixed_emd(table, np.full(c, each), each * c), realised, atol=1e-12)


def test_one_class_clients_who_get_as_much_again_are_halfway():
    """(n + m/C) / (n + m) of one class: for n = m the EMD of 1.8 is halved."""
    assert mixed_emd(np.eye(10, dtype=int) * 100, np.full(10, 10), 100) == pytest.approx(0.9)
    assert mixed_emd(np.eye(10, dtype=int) * 100, np.full(10, 10), 0) == pytest.approx(1.8)


@pytest.mark.parametrize(("alpha", "within"), [(1.0, 1e-12), (0.5, 0.01), (0.1, 0.05)])
def test_row_0_reports_the_skew_before_and_after(alpha, within):
    row = first(Run(**SMALL, share=Share(beta=0.1, alpha=alpha)))
    report = row.prepared
    assert report["emd_before"] == pytest.approx(1.8)
    assert report["emd"] == row.emd == pytest.approx(report["emd_predicted"], abs=within)
    received = report["received"]
    assert report["emd_predicted"] == pytest.approx(1.8 * 111 / (111 + received), abs=0.01)
    lab = lab_of(Run(**SMALL, share=Share(beta=0.1, alpha=alpha)))
    counts = measure.counts(DIGITS.y, [lab.part(k) for k in range(10)], 10)
    assert row.emd == pytest.approx(measure.emd(counts, np.bincount(DIGITS.y[np.concatenate(lab.parts)])).mean())


def test_later_rows_have_the_mixed_emd_of_their_clients():
    rows = list(train(Run(**SHARED, cohort=3)))
    assert [row.clients for row in rows] == [10, 3, 3]
    assert all(1.1 < row.emd < 1.3 for row in rows)
    assert [row.emd for row in train(Run(**SHARED, algorithm="sgd"))] == [0, 0, 0]


# costs


def test_row_0_counts_what_is_sent_once_and_later_rows_what_is_sent_each_round():
    before, *rounds = train(Run(**SHARED))
    assert (before.round, before.examples, before.clients, before.bytes_up) == (0, 0, 10, 0)
    assert before.loss is None
    assert not before.diverged
    assert before.prepared["shared"] == 111
    assert before.prepared["received"] == 56
    example = 64 + 8  # 8 x 8 pixels, and a label of eight bytes
    assert before.bytes_down == before.prepared["bytes"] == 10 * 56 * example
    for row in rounds:
        assert row.prepared is None
        assert row.bytes_up == row.bytes_down == 10 * 650 * 4
        assert row.examples == 10 * (111 + 56)


def test_row_0_is_there_only_when_something_was_prepared():
    assert [row.round for row in train(Run(**SMALL, holdout=0.2))] == [1, 2]
    assert [row.round for row in train(Run(**SHARED))] == [0, 1, 2]
    start = first(Run(**SMALL)).state
    assert [row.round for row in train(Run(**SMALL), initial=start["w"] | start["stats"])] == [0, 1, 2]


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


# short forms and mistakes


def test_short_forms():
    assert parse_share("beta=0.1,alpha=0.5") == Share(beta=0.1, alpha=0.5)
    assert parse_share("beta=0.1") == Share(beta=0.1, alpha=1)
    assert parse_warm_up(0.6) == parse_warm_up("0.6") == parse_warm_up("until=0.6") == WarmUp(until=0.6)
    assert parse_warm_up("rounds=5") == WarmUp(rounds=5)
    assert parse_warm_up("0.6,fraction=0.1") == WarmUp(until=0.6, fraction=0.1)
    for text in ("0.6", "rounds=5", "0.6,fraction=0.1", "rounds=5,fraction=0.1"):
        assert parse_warm_up(str(parse_warm_up(text))) == parse_warm_up(text)
    run = Run(**SHARED, warm_up="0.6,fraction=0.1", start="run:ab")
    assert run.remedy == "share beta=0.1,alpha=0.5, warm-up 0.6,fraction=0.1, start run:ab"
    assert Run(**SHARED, warm_up="rounds=5").remedy == "share beta=0.1,alpha=0.5, warm-up rounds=5"
    assert Run().remedy == ""
    assert Run(**json.loads(json.dumps(run.spec()))) == run
    toml = 'share = "beta=0.1,alpha=0.5"\nwarm_up = 0.6\n[partition]\nkind = "classes"\nn = 1\nclients = 10'
    assert Run.from_toml(toml) == Run(partition="classes:1", share="beta=0.1,alpha=0.5", warm_up=0.6)


def test_the_default_holdout_is_zhaos_and_can_be_given():
    assert (Run().held_out, Run(share="beta=0.1").held_out, Run(share="beta=0.1", holdout=0.5).held_out) == (
        0,
        0.2,
        0.5,
    )
    assert len(lab_of(Run(**SMALL, share="beta=0.8", holdout=0.5)).shared) > 500


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"share": "beta=0"}, "beta = '0': it should be greater than 0"),
        ({"share": "beta=0.1,alpha=1.5"}, "alpha = '1.5': it should be less than or equal to 1"),
        ({"share": "alpha=0.5"}, "beta is missing"),
        ({"share": "beta=0.1,gamma=2"}, "unknown key 'gamma'"),
        ({"warm_up": 0.6}, 'add share = "beta=0.1", or fraction=0.1'),
        ({"warm_up": "0.6,rounds=3", "share": "beta=0.1"}, "give one of them"),
        ({"warm_up": "fraction=0.1"}, "give one of them"),
        ({"warm_up": 5, "share": "beta=0.1"}, "until = '5': it should be less than or equal to 1"),
        ({"warm_up": "rounds=0", "share": "beta=0.1"}, "rounds = '0'"),
        ({"holdout": 1.0}, "holdout = 1.0: it should be less than 1"),
        ({"validation": -0.1}, "validation = -0.1"),
    ],
)
def test_a_wrong_spec_is_one_line(fields, says):
    with pytest.raises(FedskewError) as error:
        Run(**fields)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"share": "beta=0.3"}, "is 345, but a shared set takes 10 (one a class) to 287 (the holdout)"),
        ({"share": "beta=0.001"}, "is 1, but a shared set takes 10 (one a class)"),
        ({"share": "beta=0.1", "holdout": 0.0}, "to 0 (the holdout); change beta or holdout"),
        ({"warm_up": "0.6,fraction=1"}, "lower its fraction, or give passes"),
        ({"validation": 1e-4}, "is not one of them; raise it"),
        ({"holdout": 0.9999}, "there are only 0 examples"),
        ({"start": "run:ab"}, "is read by a store"),
    ],
)
def test_what_does_not_fit_the_data_is_one_line(fields, says):
    with pytest.raises(FedskewError) as error:
        first(Run(model="softmax", **fields))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_class_that_the_holdout_lacks_is_shared_by_nobody():
    """Two examples of class 9: the holdout may have none, and G is even over the other nine."""
    keep = np.concatenate([np.flatnonzero(DIGITS.y != 9), np.flatnonzero(DIGITS.y == 9)[:2]])
    data = datasets.from_arrays(DIGITS.x[keep], DIGITS.y[keep], DIGITS.x_test, DIGITS.y_test)
    run = Run(model="softmax", share="beta=0.1", clients=5)
    drawn = shared_set(run, data, split(run, data))
    counts = np.bincount(data.y[drawn], minlength=10)
    assert counts[9] <= 2
    assert counts[:9].max() - counts[:9].min() <= 1
