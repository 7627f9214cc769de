"""Robust means: what one wrong client can do, against formulas and against the average, in every method."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from handmade import KINDS, Federation, assert_same, cohort_of, doubles, ending_at
from hypothesis import given, settings
from hypothesis import strategies as st

from fedskew import Run, train, tree
from fedskew.algorithms import parse_algorithm
from fedskew.errors import FedskewError

honest = st.integers(0, 10_000).map(
    lambda seed: torch.randn(7, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
)
huge = st.floats(1e2, 1e30) | st.floats(-1e30, -1e2) | st.sampled_from([float("inf"), -float("inf")])
ragged = st.lists(st.integers(1, 99), min_size=7, max_size=7)


def mean_of(method, ends, n, start=None):
    method = parse_algorithm(method)
    s = method.init({"w": torch.zeros_like(ends[0]) if start is None else start}, {})
    return method.step(s, cohort_of(n), ending_at(*ends))["w"]["w"]


def with_wrong(ends, k, value):
    ends = ends.clone()
    ends[k] = value
    return ends


@settings(max_examples=30)
@given(honest, ragged, st.integers(1, 7))
def test_the_formulas(ends, n, k):
    ends, n = ends[:k], n[:k]
    torch.testing.assert_close(mean_of("median", ends, n), torch.from_numpy(np.median(ends.numpy(), axis=0)))
    for f in (0.0, 0.1, 0.2, 0.4):
        drop = int(np.floor(f * k + 1e-9))
        kept = np.sort(ends.numpy(), axis=0)[drop : k - drop]
        torch.testing.assert_close(mean_of(f"trimmed:{f}", ends, n), torch.from_numpy(kept.mean(axis=0)))


@settings(max_examples=30)
@given(honest, ragged, st.sampled_from([0, 1, 2]))
def test_krum_by_brute_force(ends, n, f):
    """Blanchard et al. 2017: of each client the squared distances to its K - f - 2 nearest others."""
    scores = []
    for i in range(7):
        apart = sorted(float((ends[i] - ends[j]).square().sum()) for j in range(7) if j != i)
        scores.append(sum(apart[: 7 - f - 2]))
    assert torch.equal(mean_of(f"krum:{f}", ends, n), ends[int(np.argmin(scores))])


@settings(max_examples=30)
@given(honest, ragged, st.floats(0.01, 10))
def test_clip_shortens_each_update_and_leaves_the_short_ones(ends, n, norm):
    start = doubles(1, 2, 3, 4)
    update = (ends - start).numpy()
    length = np.linalg.norm(update, axis=1, keepdims=True)
    shortened = np.where(length > norm, update * norm / length, update)
    expected = start.numpy() + np.average(shortened, axis=0, weights=n)
    torch.testing.assert_close(mean_of(f"clip:{norm}", ends, n, start), torch.from_numpy(expected))


@settings(max_examples=50)
@given(honest, ragged, st.integers(0, 6), huge, huge)
def test_a_wrong_client_moves_robust_means_boundedly_and_the_average_without_bound(ends, n, k, value, other):
    others = torch.cat([ends[:k], ends[k + 1 :]])
    low, high = others.min(dim=0).values, others.max(dim=0).values
    wrong = with_wrong(ends, k, value)
    for method in ("median", "trimmed:0.2", "trimmed:0.4", "krum:1", "krum:2"):
        got = mean_of(method, wrong, n)
        assert ((low <= got) & (got <= high)).all(), method
        # how large it is does not matter: beyond all others is beyond all others
        if value * other > 0:
            assert torch.equal(got, mean_of(method, with_wrong(ends, k, other), n)), method
    assert (mean_of("krum:2", wrong, n) == others).all(dim=1).any()  # one of the honest, untouched
    if np.isfinite(value):
        assert mean_of("clip:0.5", wrong, n).norm() <= 0.5 + 1e-12
        moved = (mean_of("fedavg", wrong, n) - mean_of("fedavg", ends, n)).abs().min()
        assert moved > 0.9 * n[k] / sum(n) * (abs(value) - 6)


@settings(max_examples=30)
@given(honest, ragged)
def test_krum_does_not_choose_a_client_that_is_no_longer_a_number(ends, n):
    got = mean_of("krum:2", with_wrong(with_wrong(ends, 0, float("nan")), 3, float("nan")), n)
    assert torch.isfinite(got).all()


@settings(max_examples=30)
@given(honest, ragged)
def test_as_many_wrong_clients_as_f_says_are_ignored(ends, n):
    wrong = with_wrong(with_wrong(ends, 2, 1e9), 5, -1e9)
    for method in ("median", "trimmed:0.3", "krum:2"):
        assert mean_of(method, wrong, n).abs().max() < 6, method
    assert mean_of("trimmed:0.1", wrong, [1] * 7).abs().max() < 6  # 0.7 of a client is none: they cancel
    assert mean_of("trimmed:0.1", with_wrong(ends, 2, 1e9), n).abs().max() > 1e8


@given(st.integers(0, 3), st.integers(1, 8))
def test_krum_needs_2f_plus_3_clients(f, k):
    ends = [doubles(float(i), 0.0) for i in range(k)]
    if k >= 2 * f + 3:
        assert mean_of(f"krum:{f}", ends, [1] * k).isfinite().all()
        return
    with pytest.raises(FedskewError, match=f"krum:{f} needs {2 * f + 3} clients a round or more, not {k}; lower f"):
        mean_of(f"krum:{f}", ends, [1] * k)


def test_krum_refuses_a_small_cohort_in_a_run():
    run = Run(data="digits", model="softmax", clients=10, cohort=4, rounds=1, algorithm="krum:1", examples=100)
    with pytest.raises(FedskewError, match="krum:1 needs 5 clients a round or more, not 4"):
        next(train(run))


MEANS = ["average", "median", "trimmed:0.2", "krum:1", "clip:1e9"]


def ends_of(method, wrong, n=(3, 1, 2, 2, 9)):
    """The weights after two rounds of five clients, the last of them wrong in the second; batch norm included."""
    w = {"a": doubles(1, -2), "b": doubles(0.5).reshape(1, 1)}
    s = method.init(w, {"mean": doubles(0, 0), "count": torch.tensor(5)})
    for t in (1, 2):
        moved = tree.apply(lambda x: x + 0.25, s["w"])
        stats = {"mean": s["stats"]["mean"] + 1, "count": s["stats"]["count"] + 2}
        ends, ends_stats = [moved] * 5, [stats] * 5
        if t == 2:
            ends[4], ends_stats[4] = tree.apply(lambda x: x + wrong, moved), {**stats, "count": stats["count"] + 1}
        c = cohort_of(n, [2] * 5)
        s = method.step(s, c, replace(ending_at(*ends), stats=tree.stack(ends_stats)))
    if method.kind == "feddyn":  # its h is a sum over clients whatever the mean; the mean itself is w + h / alpha
        s["w"] = tree.add(s["w"], s["h"], 1 / method.alpha)
    return s


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_mean_goes_with_every_method(kind, mean):
    """Where clients agree every mean is the average; where one is wrong, a robust one is as if it were not."""
    alike = ends_of(parse_algorithm(kind), wrong=0.0)
    robust = parse_algorithm(f"{kind},mean={mean}")
    assert_same(ends_of(robust, wrong=0.0)["w"], alike["w"])
    off = ends_of(robust, wrong=1e3)
    if mean in ("median", "trimmed:0.2", "krum:1"):
        assert_same(off["w"], alike["w"])
    else:
        assert (off["w"]["a"] - alike["w"]["a"]).abs().min() > 1e-3
    assert off["stats"]["count"].dtype == torch.int64
    assert off["stats"]["count"].item() == (10 if mean in ("average", "clip:1e9") else 9)  # 9 + 9/17 is nearer to 10
    torch.testing.assert_close(off["stats"]["mean"], doubles(2, 2))


@settings(max_examples=3)
@given(st.lists(st.integers(2, 8).map(lambda n: 3 * n), min_size=5, max_size=6))
def test_batch_norm_counters_stay_integers_in_real_training(sizes):
    for mean in ("median", "krum:1"):
        federation = Federation(sizes, norm=True)
        *_, s = federation.rounds(parse_algorithm(f"fedavgm,mean={mean}"), [range(len(sizes)), range(5)])
        count = s["stats"]["1.num_batches_tracked"]
        assert count.dtype == torch.int64
        assert min(sizes) // 3 * 2 <= count.item() <= max(sizes) // 3 * 2
        assert (s["stats"]["1.running_var"] > 0).all()
