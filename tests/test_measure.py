"""Distances between label distributions, and between weights; the bound that ties one to the other."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from fedskew import measure
from fedskew.errors import FedskewError

tables = nps.arrays(np.int64, st.tuples(st.integers(1, 8), st.integers(1, 6)), elements=st.integers(0, 50)).filter(
    np.any
)


# --- labels ---------------------------------------------------------------------------------------------------


@given(sizes=st.lists(st.integers(0, 30), min_size=1, max_size=20), seed=st.integers(0, 1000))
def test_counts_are_bincounts(sizes, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 5, 600)
    parts = np.split(rng.permutation(600)[: sum(sizes)], np.cumsum(sizes)[:-1])
    expected = np.stack([np.bincount(y[p], minlength=5) for p in parts])
    for block in (1 << 20, 37, 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(measure, "BLOCK", block)
            assert np.array_equal(measure.counts(y.astype(np.uint8), parts, 5), expected)


def test_distances_by_hand():
    counts = np.array([[10, 0], [0, 10]])
    assert measure.emd(counts).tolist() == [1.0, 1.0]
    assert measure.jensen_shannon(counts) == pytest.approx(1.5 - 0.75 * math.log2(3))
    assert measure.hellinger(counts) == pytest.approx(math.sqrt(1 - math.sqrt(0.5)))
    assert measure.effective_classes(counts).tolist() == [1.0, 1.0]
    assert measure.effective_classes(np.array([[5, 5], [1, 3]])) == pytest.approx([2, 4 / 3**0.75])
    apart = np.array([[10, 0]])
    population = [0.0, 1.0]
    assert measure.emd(apart, population).tolist() == [2.0]
    assert measure.jensen_shannon(apart, population) == pytest.approx(1)
    assert measure.hellinger(apart, population) == pytest.approx(1)


def test_ten_one_class_clients_are_at_1_8_exactly():
    summary = measure.skew(np.eye(10, dtype=np.int64) * 5000)
    assert summary["emd"] == {"mean": 1.8, "weighted": 1.8, "max": 1.8}
    assert summary["sizes"] == {"min": 5000, "mean": 5000, "max": 5000}
    assert summary["effective_classes"] == 1


@given(tables)
def test_distances_stay_in_their_ranges(counts):
    n = counts.sum(axis=1)
    largest = {measure.emd: 2, measure.jensen_shannon: 1, measure.hellinger: 1}
    for distance, most in largest.items():
        d = distance(counts)
        assert np.array_equal(np.isnan(d), n == 0), distance
        held = d[n > 0]
        assert ((held >= 0) & (held <= most + 1e-12)).all()
        # the same shares are at the same distance, however many examples
        assert np.allclose(distance(counts * 7), d, equal_nan=True, atol=1e-9)
        assert np.allclose(distance(counts[:1], counts[:1].sum(axis=0)), 0 if n[0] else np.nan, equal_nan=True)
    p = measure.emd(counts, counts.sum(axis=0) / counts.sum())
    assert np.allclose(p, measure.emd(counts), equal_nan=True)  # counts or shares
    effective = measure.effective_classes(counts)[n > 0]
    assert (effective <= (counts[n > 0] > 0).sum(axis=1) + 1e-9).all()
    assert (effective >= 1 - 1e-12).all()


@given(tables)
def test_the_summary_leaves_empty_clients_out_of_means_but_not_of_sizes(counts):
    summary = measure.skew(counts)
    n = counts.sum(axis=1)
    d = measure.emd(counts)
    assert summary["emd"]["mean"] == pytest.approx(np.nanmean(d))
    assert summary["emd"]["weighted"] == pytest.approx(np.nansum(d * n) / n.sum())
    assert summary["emd"]["max"] == np.nanmax(d)
    assert summary["sizes"] == {"min": n.min(), "mean": pytest.approx(n.mean()), "max": n.max()}
    assert summary["jensen_shannon"] == pytest.approx(np.nanmean(measure.jensen_shannon(counts)))
    assert summary["hellinger"] == pytest.approx(np.nanmean(measure.hellinger(counts)))
    assert summary["effective_classes"] == pytest.approx(np.nanmean(measure.effective_classes(counts)))


def test_huge_counts_do_not_overflow():
    counts = np.array([[2**52, 0], [0, 2**52]])
    assert measure.emd(counts) == pytest.approx(1.0)


def test_no_example_at_all_is_an_error():
    with pytest.raises(FedskewError, match="no client holds an example"):
        measure.skew(np.zeros((2, 3), np.int64))


# --- weights --------------------------------------------------------------------------------------------------


def test_divergence_by_hand():
    reference = {"a.weight": torch.tensor([[3.0, 0.0]]), "a.bias": torch.tensor([4.0]), "scale": torch.tensor([2.0])}
    w = {"a.weight": torch.tensor([[3.0, 3.0]]), "a.bias": torch.tensor([8.0]), "scale": torch.tensor([0.0])}
    got = measure.divergence(w, reference)
    assert got["relative"]["layers"] == {"a": 1.0, "scale": 1.0}  # 5 / 5 over weight and bias together; 2 / 2
    assert got["relative"]["total"] == 1.0
    assert got["rms"]["layers"] == {"a": pytest.approx(math.sqrt(25 / 3)), "scale": 2.0}
    assert got["rms"]["total"] == pytest.approx(math.sqrt(29 / 4))


def test_divergence_of_equal_weights_is_zero():
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Linear(3, 4))
    w = dict(model.named_parameters())
    got = measure.divergence(w, {k: v.clone() for k, v in w.items()})
    assert got["relative"] == got["rms"] == {"total": 0.0, "layers": {"0": 0.0, "1": 0.0}}


def test_divergence_where_the_reference_is_zero():
    zero = {"a.weight": torch.zeros(2), "b.weight": torch.zeros(2)}
    got = measure.divergence({"a.weight": torch.ones(2), "b.weight": torch.zeros(2)}, zero)
    assert got["relative"]["layers"] == {"a": math.inf, "b": 0.0}
    assert got["rms"]["layers"] == {"a": 1.0, "b": 0.0}


def test_small_divergence_is_not_lost_in_single_precision():
    r = {"a": torch.full((1000,), 1000.0)}
    w = {"a": r["a"] + 2**-10}
    assert measure.divergence(w, r)["relative"]["total"] == pytest.approx(2**-10 / 1000, rel=1e-9)


def test_weights_of_two_models_are_refused():
    with pytest.raises(FedskewError, match="only one of them has b"):
        measure.divergence({"a": torch.ones(1), "b": torch.ones(1)}, {"a": torch.ones(1)})


# --- Proposition 3.1 ------------------------------------------------------------------------------------------


class Softmax:
    """Softmax regression, full-batch; the loss of a distribution over classes is that mixture of class losses."""

    def __init__(self, seed, classes=4, dim=3, n=20):
        self.rng = np.random.default_rng(seed)
        self.x = self.rng.normal(size=(classes, n, dim)) + self.rng.normal(size=(classes, 1, dim))
        self.classes, self.dim = classes, dim
        # the Hessian is at most 1/2 (softmax) times the second moment of x
        second = np.einsum("cni,cnj->cij", self.x, self.x) / n
        self.lipschitz = np.linalg.eigvalsh(second)[:, -1] / 2

    def gradients(self, w):
        """One a class: (C, C, dim)."""
        z = self.x @ w.T
        p = np.exp(z - z.max(axis=2, keepdims=True))
        p /= p.sum(axis=2, keepdims=True)
        p -= np.eye(self.classes)[:, None]
        return np.einsum("cnk,cnd->ckd", p, self.x) / self.x.shape[1]

    def g_max(self, w):
        return max(np.linalg.norm(g) for g in self.gradients(w))

    def descend(self, w, p, lr, steps):
        path = [w]
        for _ in range(steps):
            path.append(path[-1] - lr * np.tensordot(p, self.gradients(path[-1]), 1))
        return path


@given(seed=st.integers(0, 500), steps=st.integers(1, 8), lr=st.floats(0.001, 0.5), full=st.booleans())
def test_divergence_stays_under_the_bound(seed, steps, lr, full):
    problem = Softmax(seed)
    sizes = problem.rng.integers(1, 100, 5)
    p_k = problem.rng.dirichlet(np.full(4, 0.3), 5)
    # all clients: their mixture is the population; a sample of them: it is not
    p = sizes @ p_k / sizes.sum() if full else problem.rng.dirichlet(np.ones(4))
    federated = centralised = problem.rng.normal(size=(4, 3))
    previous = 0.0
    for _ in range(3):
        path = problem.descend(centralised, p, lr, steps)
        most = measure.bound(
            previous, lr, steps, sizes, p_k, p, problem.lipschitz, [problem.g_max(w) for w in path[:-1]]
        )
        local = [problem.descend(federated, q, lr, steps)[-1] for q in p_k]
        federated, centralised = np.tensordot(sizes / sizes.sum(), local, 1), path[-1]
        previous = float(np.linalg.norm(federated - centralised))
        assert previous <= most * (1 + 1e-9) + 1e-12


def test_the_bound_by_hand():
    # a = 1 + 0.5 * 2 = 2, EMD = 1 for both; T = 3: 2^3 * 1 + 0.5 * 1 * (2 * g_1 + 4 * g_0)
    two = np.eye(2)
    assert measure.bound(1.0, 0.5, 3, [1, 1], two, [0.5, 0.5], [2, 2], [10, 100, 1000]) == 8 + 0.5 * (200 + 40)
    # synchronised after every step, full-batch FedAvg is SGD
    assert measure.bound(0.0, 0.5, 1, [1, 1], two, [0.5, 0.5], [2, 2], [10]) == 0
    # only one of the two takes part: its own step is off by lr * EMD * g, too
    assert measure.bound(0.0, 0.5, 1, [1], two[:1], [0.5, 0.5], [2, 2], [10]) == 5
    # all clients alike: nothing but the old divergence grows
    assert measure.bound(1.0, 0.5, 2, [3, 1], [[0.5, 0.5]] * 2, [0.5, 0.5], [2, 2], [9, 9]) == 4


def test_the_bound_wants_a_gradient_a_step():
    with pytest.raises(FedskewError, match="one for each of the 3 steps"):
        measure.bound(0.0, 0.1, 3, [1], [[1.0]], [1.0], [1.0], [1.0])
