import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedskew.engine.batches import Plan, cohort

CPU = torch.device("cpu")


def parts_of(sizes):
    return np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])


def make(sizes, epochs=1, batch=4, drop_last=False, seed=0, round_=1, transform="none", shape=(2,)):
    plan = Plan(epochs, batch, drop_last, transform, shape)
    return cohort(plan, range(len(sizes)), parts_of(sizes), 0.1, seed, round_, CPU)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(1, 3), st.integers(1, 9))
def test_every_client_meets_each_of_its_examples_once_an_epoch(sizes, epochs, batch):
    c = make(sizes, epochs, batch)
    for k, part in enumerate(parts_of(sizes)):
        seen = c.index[k][c.mask[k]]
        assert sorted(seen.tolist()) == sorted(part.tolist() * epochs)
        steps = c.mask[k].any(dim=1).sum().item()
        assert steps == epochs * -(-len(part) // min(batch, len(part)))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(1, 9))
def test_dropping_leaves_only_full_batches_but_never_nothing(sizes, batch):
    c = make(sizes, batch=batch, drop_last=True)
    for k, n in enumerate(sizes):
        filled = c.mask[k].sum(dim=1)
        assert set(filled[filled > 0].tolist()) == {min(batch, n)}


def test_no_batch_size_is_one_batch_of_everything():
    c = make([5, 9], batch=None)
    assert c.index.shape == (2, 1, 9)
    assert c.mask.sum(dim=(1, 2)).tolist() == [5, 9]


def test_a_client_trains_alike_whoever_else_is_there():
    alone = cohort(Plan(2, 3, False, "crop-flip", (3, 8, 8)), [7], [np.arange(5)], 0.1, 0, 4, CPU)
    both = cohort(Plan(2, 3, False, "crop-flip", (3, 8, 8)), [2, 7], [np.arange(50), np.arange(5)], 0.1, 0, 4, CPU)
    steps = alone.index.shape[1]
    assert torch.equal(both.index[1, :steps], alone.index[0])
    assert torch.equal(both.draws[1, :steps], alone.draws[0])
    assert both.keys[1] == alone.keys[0]


def test_rounds_seeds_and_clients_have_their_own_order():
    orders = [make([30, 30], seed=s, round_=r).index[0].flatten().tolist() for s, r in [(0, 1), (0, 2), (1, 1)]]
    assert orders[0] != orders[1]
    assert orders[0] != orders[2]
    c = make([30, 30])
    assert c.index[0].flatten().tolist() != (c.index[1] - 30).flatten().tolist()
