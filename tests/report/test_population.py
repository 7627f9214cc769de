from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedskew.experiment import train
from fedskew.report import population
from fedskew.report.clients import holdings_of
from fedskew.run import Run


@pytest.mark.parametrize("more", [{}, {"share": "beta=0.2,alpha=0.5"}, {"examples": 300, "holdout": 0.1}])
def test_holdings_are_those_that_training_measured(more: dict[str, object]) -> None:
    run = Run(model="softmax", partition="dirichlet:0.3", clients=6, rounds=1, seed=3, **more)
    held = holdings_of(run.spec())
    *_, last = train(run, device="cpu")
    assert held.emd.mean() == pytest.approx(last.emd, abs=1e-12)
    assert held.counts.sum() == last.examples


def test_a_client_without_examples_keeps_its_line_and_bars_their_order() -> None:
    counts = np.array([[0, 3], [0, 0], [2, 1]])
    found = population.holdings(counts, ["a", "b"], clients=["z", "empty", "a"])
    assert [r["client"] for r in found] == ["z", "empty", "a", "a"]
    assert [(r["class"], r["examples"], r["share"]) for r in found][2:] == [("a", 2, 2 / 3), ("b", 1, 1 / 3)]
    assert population.bars(found, ["a", "b"]).to_dict()["height"] == 3 * population.BAR
    assert population.bars(found, "abcdefghij").to_dict()["height"] == 10 * population.BAR  # the legend's


@given(st.lists(st.floats(0, 2), min_size=1, max_size=50))
def test_every_client_is_in_one_emd_bin(emd: list[float]) -> None:
    bins = population.emd_bins(emd)
    assert sum(b["clients"] for b in bins) == len(emd)
    assert [b["low"] for b in bins] == pytest.approx(np.arange(20) / 10)


def test_emd_on_an_edge_is_in_the_bin_above() -> None:
    (full,) = [b for b in population.emd_bins([1.8, np.nextafter(1.8, 0)]) if b["clients"]]  # a rounding error apart
    assert (full["low"], full["clients"]) == (1.8, 2)


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=50))
def test_sizes_fall_into_whole_steps(sizes: list[int]) -> None:
    bins = population.size_bins(np.array(sizes))
    assert sum(b["clients"] for b in bins) == len(sizes)
    assert all(b["low"] == int(b["low"]) for b in bins)
    assert all(b["clients"] == sum(b["low"] <= size < b["high"] for size in sizes) for b in bins)
