"""Laws of the prepare seam: who gets which example before the first round, what it costs, and where training starts."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedskew import measure, prepare, rng
from fedskew.data import datasets
from fedskew.errors import FedskewError
from fedskew.experiment import train
from fedskew.prepare import Share, WarmUp, hold_out, mixed_emd, parse_share, parse_warm_up
from fedskew.run import Run
from fedskew.sides import shared_set, split
from prepared_runs import DIGITS, SHARED, SMALL, first, lab_of, labels

pytestmark = pytest.mark.usefixtures("one_thread")


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
