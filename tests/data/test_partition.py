"""Laws that hold for every partition, over ragged classes, client numbers and seeds."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from partition_samples import SAMPLES

from fedskew import measure
from fedskew.data.partition import (
    Classes,
    Dirichlet,
    DirichletByClass,
    Emd,
    Groups,
    Iid,
    Quantity,
    Shards,
    classes,
    emd,
    pool,
)
from fedskew.errors import FedskewError
from fedskew.rng import stream

CIFAR = np.repeat(np.arange(10), 5000)

seeds = st.integers(0, 10_000)
class_sizes = st.lists(st.integers(0, 40), min_size=1, max_size=7).filter(any)
alphas = st.sampled_from([0.0, 1e-300, 1e-9, 1e-3, 0.1, 1.0, 10.0, 1e6, 1e305, math.inf])


@st.composite
def labels(draw, sizes=class_sizes):
    y = np.repeat(np.arange(len(held := draw(sizes))), held)
    return np.random.default_rng(draw(seeds)).permutation(y)


def all_of(parts):
    return np.sort(np.concatenate(parts))


def lengths(parts):
    return np.array([len(p) for p in parts])


def table(y, parts):
    return measure.counts(y, parts, int(y.max()) + 1)


# --- every example once ---------------------------------------------------------------------------------------


@given(y=labels(), seed=seeds, clients=st.integers(1, 12), alpha=alphas, n=st.integers(1, 4))
def test_all_examples_are_dealt_once(y, seed, clients, alpha, n):
    assume(clients * n <= len(y))
    for spec in (
        Iid(clients=clients),
        Shards(clients=clients, n=n),
        Quantity(clients=clients, alpha=alpha),
        DirichletByClass(clients=clients, alpha=alpha, min_size=0),
    ):
        parts = spec(y, stream(seed, "p"))
        assert len(parts) == clients, spec
        assert np.array_equal(all_of(parts), np.arange(len(y))), spec


@given(y=labels(), seed=seeds, clients=st.integers(1, 12), alpha=alphas)
def test_dirichlet_clients_are_equal_and_share_nothing(y, seed, clients, alpha):
    assume(clients <= len(y))
    parts = Dirichlet(clients=clients, alpha=alpha)(y, stream(seed, "p"))
    dealt = all_of(parts)
    assert len(np.unique(dealt)) == len(dealt)
    assert set(lengths(parts)) == {len(dealt) // clients}
    if alpha > 0:
        assert len(dealt) == len(y) // clients * clients
    else:
        assert (table(y, parts) > 0).sum(axis=1).tolist() == [1] * clients


@given(y=labels(), seed=seeds, clients=st.integers(1, 12), n=st.integers(1, 7), keep=st.booleans())
def test_classes_deals_exactly_n_classes(y, seed, clients, n, keep):
    try:
        parts = Classes(clients=clients, n=n, keep=keep)(y, stream(seed, "p"))
    except FedskewError:
        held = np.bincount(y)
        pieces = -(-clients * n // np.count_nonzero(held))
        assert n > np.count_nonzero(held) or held[held > 0].min() < pieces or clients > len(y)
        return
    dealt = all_of(parts)
    assert len(np.unique(dealt)) == len(dealt)
    counts = table(y, parts)
    assert (counts > 0).sum(axis=1).tolist() == [n] * clients
    if keep:  # a class is either not dealt at all or to its last example
        assert all(used in (0, there) for used, there in zip(counts.sum(axis=0), np.bincount(y), strict=True))
    else:
        assert len(set(lengths(parts))) == 1
        assert len(set(counts[counts > 0])) == 1


@given(
    each=st.integers(1, 60),
    classes=st.integers(1, 7),
    extra=st.lists(st.integers(0, 20), min_size=7, max_size=7),
    rounds=st.integers(1, 3),
    part=st.floats(0, 1),
    seed=seeds,
)
def test_emd_is_met_within_one_example(each, classes, extra, rounds, part, seed):
    clients, target = classes * rounds, part * 2 * (1 - 1 / classes)
    assume(each >= clients)
    y = np.repeat(np.arange(classes), [each + e for e in extra[:classes]])
    parts = Emd(clients=clients, value=target)(y, stream(seed, "p"))
    dealt = all_of(parts)
    assert len(np.unique(dealt)) == len(dealt)
    size = len(parts[0])
    assert set(lengths(parts)) == {size}
    smallest = np.bincount(y).min()
    assert size == classes * (smallest // clients)
    counts = table(y, parts)
    assert len(set(counts.sum(axis=0))) == 1  # the population is even
    assert np.array_equal(counts[1:], np.roll(counts[:-1], 1, axis=1))  # one P, shifted
    assert np.abs(measure.emd(counts) - target).max() <= 1 / size + 1e-12


@given(y=labels(), seed=seeds, groups=st.integers(1, 15), clients=st.none() | st.integers(1, 12))
def test_groups_are_never_split(y, seed, groups, clients):
    group = np.random.default_rng(seed).integers(0, groups, len(y)) * 7
    names = np.unique(group)
    assume(clients is None or clients <= len(names))
    parts = Groups(clients=clients)(y, stream(seed, "p"), group)
    assert np.array_equal(all_of(parts), np.arange(len(y)))
    owners = [set(group[p]) for p in parts]
    assert sum(map(len, owners)) == len(names) == len(set().union(*owners))
    assert max(map(len, owners)) - min(map(len, owners)) <= 1
    if clients is None:
        assert [o.pop() for o in owners] == names.tolist()


# --- sizes and seeds ------------------------------------------------------------------------------------------


@given(n=st.integers(1, 300), clients=st.integers(1, 40), k=st.integers(1, 5), seed=seeds)
def test_near_equal_sizes(n, clients, k, seed):
    assume(clients * k <= n)
    y = np.zeros(n, np.int64)
    iid = lengths(Iid(clients=clients)(y, stream(seed, "p")))
    assert iid.max() - iid.min() <= 1
    shards = lengths(Shards(clients=clients, n=k)(y, stream(seed, "p")))
    assert shards.max() - shards.min() <= k


@given(alpha=alphas, clients=st.integers(1, 20), least=st.integers(0, 5), seed=seeds)
def test_quantity_keeps_min_size(alpha, clients, least, seed):
    sizes = lengths(Quantity(clients=clients, alpha=alpha, min_size=least)(np.zeros(100, np.int64), stream(seed, "p")))
    assert sizes.min() >= least
    assert sizes.sum() == 100
    if alpha == math.inf:
        assert sizes.max() - sizes.min() <= 1


def test_by_class_redraws_until_min_size():
    drawn = DirichletByClass(clients=10, alpha=0.5, min_size=0)(CIFAR, stream(0, "p"))
    wanted = int(lengths(drawn).min()) + 200
    parts = DirichletByClass(clients=10, alpha=0.5, min_size=wanted)(CIFAR, stream(0, "p"))
    assert lengths(parts).min() >= wanted


@pytest.mark.parametrize("spec", SAMPLES, ids=str)
def test_a_seed_decides_and_the_dtype_of_labels_does_not(spec):
    y = stream(0, "y").permutation(CIFAR)
    groups = stream(0, "g").integers(0, 100, len(y))
    first = spec(y, stream(1, "p"), groups)
    for same in (spec(y.astype(np.uint8), stream(1, "p"), groups), spec(y.tolist(), stream(1, "p"), groups)):
        assert all(np.array_equal(a, b) and a.dtype == b.dtype == np.int64 for a, b in zip(first, same, strict=True))
    other = spec(y, stream(2, "p"), groups)
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_blocks_change_nothing(monkeypatch):
    specs = [
        Shards(clients=50, n=3),
        Classes(clients=50, n=2),
        Classes(clients=50, n=2, keep=True),
        DirichletByClass(clients=50, alpha=1.0),
        Emd(clients=50, value=1.2),
    ]
    whole = [s(CIFAR, stream(0, "p")) for s in specs]
    for module in (pool, classes, emd):
        monkeypatch.setattr(module, "BLOCK", 230)
    for spec, parts in zip(specs, whole, strict=True):
        assert all(map(np.array_equal, spec(CIFAR, stream(0, "p")), parts)), spec


# --- the papers' own settings ---------------------------------------------------------------------------------


def test_zhao_one_class_is_1_8_exactly():
    counts = table(CIFAR, Classes(clients=10, n=1)(CIFAR, stream(0, "p")))
    assert measure.emd(counts).tolist() == [1.8] * 10
    assert sorted(counts.max(axis=1).tolist()) == [5000] * 10


def test_zhao_two_classes_are_twenty_pieces():
    counts = table(CIFAR, Classes(clients=10, n=2)(CIFAR, stream(0, "p")))
    assert set(counts.ravel().tolist()) == {0, 2500}
    assert measure.emd(counts).tolist() == [1.6] * 10


@pytest.mark.parametrize("n", range(1, 11))
def test_lahoti_twenty_clients(n):
    counts = table(CIFAR, Classes(clients=20, n=n)(CIFAR, stream(n, "p")))
    assert (counts > 0).sum(axis=0).tolist() == [2 * n] * 10
    assert set(counts.ravel().tolist()) - {0} == {5000 // (2 * n)}


def test_classes_pairs_are_random():
    pairs = {tuple(np.flatnonzero(row)) for row in table(CIFAR, Classes(clients=200, n=2)(CIFAR, stream(0, "p")))}
    assert len(pairs) > 40  # of 45


@pytest.mark.parametrize("value", [0, 0.36, 0.72, 1.08, 1.44, 1.62, 1.764, 1.8])
def test_zhao_table_2_has_these_emds(value):
    seen = set()
    for seed in range(5):
        parts = Emd(clients=10, value=value)(CIFAR, stream(seed, "p"))
        counts = table(CIFAR, parts)
        assert measure.emd(counts).tolist() == [value] * 10
        assert np.array_equal(all_of(parts), np.arange(50_000))
        seen.add(tuple(counts[0]))
    assert len(seen) == 1 if value == 0 else len(seen) > 1


def test_mcmahan_shards_cut_the_sorted_data():
    y = stream(0, "y").permutation(CIFAR)
    parts = Shards(clients=100, n=2)(y, stream(0, "p"))
    assert set(lengths(parts)) == {500}
    assert max(len(set(y[p])) for p in parts) == 2  # 250 divides 5,000: no shard meets a border
    ragged = np.repeat(np.arange(3), [10, 11, 9])
    assert max(len(set(ragged[p])) for p in Shards(clients=3, n=1)(ragged, stream(0, "p"))) == 2
