import torch
from hypothesis import given
from hypothesis import strategies as st

from fedskew import tree


def test_mean_is_weighted_by_examples():
    stacked = {"a": torch.tensor([[0.0, 0.0], [4.0, 8.0]])}
    assert tree.mean(stacked, torch.tensor([3, 1]))["a"].tolist() == [1.0, 2.0]


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=6), st.floats(-1e3, 1e3))
def test_mean_of_equal_clients_is_the_client(n, value):
    stacked = {"a": torch.full((len(n), 2), value, dtype=torch.float64)}
    torch.testing.assert_close(tree.mean(stacked, torch.tensor(n))["a"], stacked["a"][0])


def test_counters_stay_integers():
    mean = tree.mean({"n": torch.tensor([10, 10, 13])}, torch.tensor([1, 1, 1]))["n"]
    assert mean.dtype == torch.int64
    assert mean.item() == 11


def test_arithmetic():
    a, b = {"x": torch.tensor([3.0, 4.0])}, {"x": torch.tensor([1.0, 1.0])}
    assert tree.add(a, b, 0.5)["x"].tolist() == [3.5, 4.5]
    assert tree.sub(a, b)["x"].tolist() == [2.0, 3.0]
    assert tree.nbytes(a) == 8
    assert tree.stack([a, b])["x"].shape == (2, 2)
