"""The clients as two arrays: they read as a list of arrays does, and a million cost no more than their indices."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedskew import measure
from fedskew.data.dataset import Dataset
from fedskew.data.partition import Iid, Parts, parse_partition
from fedskew.laboratory import Laboratory
from fedskew.rng import stream
from fedskew.run import Run
from fedskew.sides import split

sizes = st.lists(st.integers(0, 5), max_size=12)


def both(sizes):
    flat = stream(0, "flat").permutation(sum(sizes))
    return Parts(flat, sizes), [*np.split(flat, np.cumsum(sizes)[:-1])] if sizes else []


def same(parts, arrays):
    assert len(parts) == len(arrays)
    assert all(map(np.array_equal, parts, arrays))


@given(sizes, st.slices(12))
def test_they_read_as_a_list_does(sizes, some):
    parts, arrays = both(sizes)
    same(parts, arrays)
    same(parts[some], arrays[some])
    same(parts[some][::-1], arrays[some][::-1])
    same(list(reversed(parts)), arrays[::-1])
    assert parts.sizes.tolist() == parts[:].sizes.tolist() == sizes
    for k in range(-len(sizes), len(sizes)):
        assert np.array_equal(parts[np.int64(k)], arrays[k])
        assert np.shares_memory(parts[k], parts.flat) == (len(arrays[k]) > 0)
    for k in (len(sizes), -len(sizes) - 1):
        with pytest.raises(IndexError):
            parts[k]


@given(sizes)
def test_they_can_be_made_of_separate_arrays(sizes):
    parts, arrays = both(sizes)
    again = Parts.of(arrays)
    same(again, arrays)
    assert again.flat.dtype == np.int64
    assert Parts.of(again) is again
    assert repr(parts) == f"Parts({len(sizes)} clients, {sum(sizes)} examples)"


@given(sizes.filter(any), st.integers(1, 9))
def test_labels_are_counted_block_by_block(sizes, block):
    parts, arrays = both(sizes)
    y = stream(0, "y").integers(0, 4, sum(sizes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "BLOCK", block)
        counts = np.array([np.bincount(y[a], minlength=4) for a in arrays])
        assert np.array_equal(measure.counts(y, parts, 4), counts)
        assert np.array_equal(measure.population(y, parts, 4), counts.sum(axis=0))
    assert measure.population(y, [], 4).tolist() == [0, 0, 0, 0]


def traced(work):
    """What the work gives, the bytes it keeps and the most it held."""
    tracemalloc.start()
    try:
        result = work()
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return result, kept, peak


EACH = 5


def crowd(clients):
    n = EACH * clients
    x = np.zeros((n, 1), np.uint8)
    y = np.arange(n) % 10
    return Dataset("crowd", x, y, x[:10], y[:10], tuple("0123456789"))


@pytest.mark.parametrize(
    ("partition", "clients", "index_arrays"),
    # all but iid deal from a second array, which holds every example by class
    [("iid", 400_000, 1), ("dirichlet:0.1", 400_000, 2), ("classes:1", 40_000, 2), ("shards:1", 400_000, 2)],
)
def test_clients_cost_their_index_arrays_and_little_more(partition, clients, index_arrays):
    data = crowd(clients)
    run = Run(partition=parse_partition(partition, clients=clients), model="softmax")
    stream(0, "warm").permutation(2)
    parts, kept, peak = traced(lambda: split(run, data))
    index = 8 * EACH * clients
    blocks = 64 << 20 if partition.startswith("dirichlet") else 6 << 20  # at a time, however many clients
    assert len(parts) == clients
    assert kept - index < 9 * clients + (1 << 20)  # one offset a client
    assert peak - index_arrays * index < 40 * clients + blocks


def test_a_run_keeps_no_more_of_a_client_than_where_its_indices_begin():
    clients = 200_000
    run, data = Run(partition=Iid(clients=clients), cohort=10, model="softmax"), crowd(clients)
    Laboratory.of(run, data, "cpu", "loop", "tf32")
    lab, kept, peak = traced(lambda: Laboratory.of(run, data, "cpu", "loop", "tf32"))
    index = 8 * EACH * clients
    assert len(lab.parts) == clients
    assert kept - index < 9 * clients + (1 << 20)
    assert peak - index < 40 * clients + (6 << 20)


@pytest.mark.parametrize("algorithm", ["fedavg", "sgd"])
def test_a_round_costs_the_same_whatever_the_population(algorithm):
    most = []
    for clients in (5_000, 100_000):
        run = Run(partition=Iid(clients=clients), cohort=10, model="softmax", algorithm=algorithm)
        lab = Laboratory.of(run, crowd(clients), "cpu", "loop", "tf32")
        lab.prepared(1)
        (chosen, cohort), _, peak = traced(lambda lab=lab: (lab.prepared(2), lab.emd(np.arange(10)))[0])
        assert len(chosen) == 10
        assert int(cohort.mask.sum()) == 10 * EACH
        most.append(peak)
    assert most[1] < most[0] + 50_000  # an array of the larger population would take 800,000
