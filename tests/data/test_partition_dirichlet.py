"""Hsu's population: its EMD, its ends, and the fast draw beside the plain one."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedskew import measure
from fedskew.data.partition import Dirichlet, DirichletByClass, draws
from fedskew.rng import stream

CIFAR = np.repeat(np.arange(10), 5000)


def population(alpha, seed, y=CIFAR, clients=100, **options):
    return measure.counts(y, Dirichlet(clients=clients, alpha=alpha, **options)(y, stream(seed, "p")), 10)


@pytest.mark.parametrize(("alpha", "mean"), [(0.1, 1.74), (1, 1.42), (10, 0.70)])
def test_mean_emd_has_the_papers_scale(alpha, mean):
    # Dir(alpha p), not Dir(alpha): that would read 1.42, 0.70, 0.24. The last clients take what is left, which
    # adds a few hundredths to the drawn value.
    seen = [measure.emd(population(alpha, seed)).mean() for seed in range(5)]
    assert np.mean(seen) == pytest.approx(mean, abs=0.06)


def test_the_ends():
    one_class = population(0, 0)
    assert set(one_class.ravel().tolist()) == {0, 500}
    assert measure.emd(one_class).tolist() == [1.8] * 100
    tiny = population(1e-9, 0)
    assert np.array_equal((tiny > 0).sum(axis=1), np.ones(100))
    even = population(math.inf, 0)
    assert measure.emd(even).mean() < 0.13  # the noise of 500 multinomial draws
    assert np.isclose(measure.emd(population(1e12, 0)).mean(), measure.emd(even).mean(), atol=0.02)


def test_alpha_zero_draws_classes_by_the_prior():
    prior = np.array([4, 3, 2, 1])
    y = np.repeat(np.arange(4), 50)
    first = [Dirichlet(clients=2, alpha=0, prior=tuple(map(float, prior)))(y, stream(s, "p"))[0] for s in range(600)]
    drawn = np.bincount([y[p[0]] for p in first], minlength=4)
    assert np.abs(drawn / 600 - prior / 10).max() < 0.08  # four standard deviations


def test_alpha_zero_over_uneven_classes_is_still_one_class():
    sizes = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]  # MNIST
    counts = population(0, 0, y=np.repeat(np.arange(10), sizes))
    assert (counts > 0).sum(axis=1).tolist() == [1] * 100
    size = int(counts.sum(axis=1)[0])
    assert sum(n // size for n in sizes) >= 100 > sum(n // (size + 1) for n in sizes)


def test_a_prior_is_followed_and_zero_is_never_drawn():
    counts = population(math.inf, 0, clients=20, prior=(0.5, 0.3, 0.2, *[0.0] * 7))
    assert counts[:, 3:].sum() == 0
    assert counts.sum() == 15_000  # all of the three classes
    assert np.abs(counts[:5, :3].sum(axis=0) / counts[:5].sum() - [0.5, 0.3, 0.2]).max() < 0.04
    uneven = np.repeat(np.arange(10), [9000, *[1000] * 9])
    assert population(math.inf, 0, y=uneven)[:20, 0].mean() == pytest.approx(90, abs=10)
    assert population(math.inf, 0, y=uneven, prior="uniform")[:20, 0].mean() == pytest.approx(18, abs=4)


def plain(rng, concentration, room, size, clients):
    """One label after the other; an exhausted class leaves the rest renormalised."""
    counts = np.zeros((clients, len(room)), np.int64)
    left = room.copy()
    for k in range(clients):
        q = rng.dirichlet(concentration)
        for _ in range(size):
            p = np.where(left > 0, q, 0)
            c = rng.choice(len(room), p=p / p.sum())
            counts[k, c] += 1
            left[c] -= 1
    return counts


def test_the_block_draw_has_the_law_of_the_plain_one():
    room, concentration = np.array([4, 9, 7]), np.array([0.6, 1.0, 2.0])
    rng = stream(0, "law")
    slow = np.stack([plain(rng, concentration, room, 4, 5) for _ in range(800)])
    fast = np.stack([np.concatenate([*draws.label_counts(rng, concentration, room, 4, 5)]) for _ in range(6000)])
    assert np.array_equal(fast.sum(axis=1), np.broadcast_to(room, (6000, 3)))
    deviation = np.sqrt(slow.var(axis=0) * (1 / 800 + 1 / 6000))
    assert (np.abs(slow.mean(axis=0) - fast.mean(axis=0)) < 4 * deviation + 1e-9).all()
    # how mixed a client is, too: a draw for each label instead of each client would have the same means
    assert np.abs((slow == 4).mean(axis=0) - (fast == 4).mean(axis=0)).max() < 0.06
    assert (fast[:, 0] == 4).any(axis=1).mean() > 0.15


@given(
    room=st.lists(st.integers(0, 20), min_size=1, max_size=6).filter(any),
    low=st.lists(st.sampled_from([-1e300, -1e9, -700.0, -1.0, 0.0]), min_size=6, max_size=6),
    seed=st.integers(0, 1000),
)
def test_a_capped_draw_fills_up(room, low, seed):
    room, low = np.array(room), np.array(low)[: len(room)]
    for n in (0, int(room.sum()) // 2, int(room.sum())):
        taken = draws.capped(stream(seed, "c"), low, n, room)
        assert taken.sum() == n
        assert ((taken >= 0) & (taken <= room)).all()


@pytest.mark.parametrize("concentration", [1e-300, 1e-9, 0.05, 1.0, 30.0, 1e300])
def test_log_dirichlet_is_a_dirichlet(concentration):
    q = draws.softmax(draws.log_dirichlet(stream(0, "d"), np.array([1.0, 2.0, 5.0]) * concentration, 20_000))
    mean = np.array([1, 2, 5]) / 8
    assert np.abs(q.mean(axis=0) - mean).max() < 0.015
    variance = mean * (1 - mean) / (1 + 8 * concentration)
    assert np.abs(q.var(axis=0) - variance).max() < 0.006


def test_yurochkin_spreads_each_class():
    parts = DirichletByClass(clients=10, alpha=0.5)(CIFAR, stream(0, "p"))
    shares = measure.counts(CIFAR, parts, 10) / 5000
    assert np.allclose(shares.sum(axis=0), 1)
    expected = 0.1 * 0.9 / (1 + 10 * 0.5)  # of a share under Dir(0.5, ...)
    many = np.stack(
        [
            measure.counts(CIFAR, DirichletByClass(clients=10, alpha=0.5)(CIFAR, stream(s, "p")), 10) / 5000
            for s in range(30)
        ]
    )
    assert many.var() == pytest.approx(expected, rel=0.15)
    even = DirichletByClass(clients=10, alpha=math.inf)(CIFAR, stream(0, "p"))
    assert set(measure.counts(CIFAR, even, 10).ravel()) == {500}
