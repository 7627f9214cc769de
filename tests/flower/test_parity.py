"""A federation ends as the simulation does: the same loop, the same clients, the same order."""

import math

import pytest
import torch
from loopback import Loopback

from fedskew.experiment import train
from fedskew.flower.rounds import federate
from fedskew.flower.settings import Settings
from fedskew.rounds import Beginning
from fedskew.run import Run

METHODS = ["fedavg", "fedavgm:0.9", "fedprox:0.1", "scaffold", "fednova", "feddyn:0.05", "fedadam", "moon:1"]
OPTIONS = ["median", "krum:0", "clip:1", "fedrs", "adjusted", "balanced", "smoothing:0.1", "swa:0.5"]
SHARED = {"share": "beta=0.1,alpha=0.5", "warm_up": "rounds=1"}


def same(a, b):
    return a.keys() == b.keys() and all(
        list(a[key]) == list(b[key]) and all(torch.equal(a[key][n], b[key][n]) for n in a[key]) for key in a
    )


def federated(run, data, nodes, engine="loop", **settings):
    grid = Loopback([{"partition-id": k, "report-label-counts": True, "device": "cpu"} for k in nodes])
    return list(federate(grid, run, data, Settings(engine=engine, device="cpu", **settings), Beginning())), grid


@pytest.mark.parametrize("algorithm", METHODS + OPTIONS)
def test_every_method_ends_bit_for_bit_like_the_loop(algorithm, digits, one_thread):
    more = SHARED if algorithm in ("fedavg", "fedavgm:0.9", "scaffold", "moon:1") else {}
    run = Run(partition="dirichlet:0.3", clients=4, rounds=2, algorithm=algorithm, examples=300, **more)
    rows, _ = federated(run, digits, nodes=(2, 0, 3, 1))
    expected = list(train(run, data=digits, engine="loop", device="cpu"))
    assert [r.round for r in rows] == [r.round for r in expected]
    for ours, theirs in zip(rows, expected, strict=True):
        assert same(ours.state, theirs.state)
        assert (ours.accuracy, ours.loss, ours.emd, ours.examples) == (
            *(theirs.accuracy, theirs.loss, theirs.emd, theirs.examples),
        )
        assert ours.lost == 0


@pytest.mark.parametrize("more", [{"participation": 0.5}, {"cohort": 1}, {"batch": "full", "momentum": 0.5}])
def test_samples_and_local_options_are_the_simulations(more, digits, one_thread):
    run = Run(partition="quantity:0.5", clients=5, rounds=3, examples=200, lr_decay=0.9, **more)
    rows, _ = federated(run, digits, nodes=range(5))
    *_, expected = train(run, data=digits, engine="loop", device="cpu")
    assert same(rows[-1].state, expected.state)
    assert rows[-1].clients == expected.clients


def test_batch_norm_and_augmentation(digits, one_thread):
    """Statistics and integer counters travel with the weights, and crops and flips are a client's own."""
    run = Run(clients=3, rounds=2, examples=60, model="flower_networks:normed", transform="crop-flip", epochs=2)
    rows, _ = federated(run, digits, nodes=range(3))
    *_, expected = train(run, data=digits, engine="loop", device="cpu")
    assert any(not leaf.is_floating_point() for leaf in expected.state["stats"].values())
    assert same(rows[-1].state, expected.state)


def test_other_engines_agree_to_rounding(digits, one_thread):
    run = Run(partition="dirichlet:0.3", clients=3, rounds=2, examples=200, algorithm="fedavgm:0.9")
    rows, _ = federated(run, digits, nodes=range(3), engine="auto")
    *_, expected = train(run, data=digits, engine="loop", device="cpu")
    for name, leaf in expected.state["w"].items():
        torch.testing.assert_close(rows[-1].state["w"][name], leaf, rtol=1e-4, atol=1e-6)


def test_it_goes_on_from_any_row(digits, one_thread):
    run = Run(clients=3, rounds=3, examples=150, algorithm="scaffold", **SHARED)
    rows, grid = federated(run, digits, nodes=range(3))
    middle = rows[1]
    at = Beginning(state=middle.state, first_round=middle.round + 1)
    again = list(federate(grid, run, digits, Settings(engine="loop", device="cpu"), at))
    assert [r.round for r in again] == [2, 3]
    assert same(again[-1].state, rows[-1].state)


def test_the_shared_set_travels_once_and_weights_once_a_round(digits):
    run = Run(clients=3, rounds=2, examples=200, **SHARED)
    rows, grid = federated(run, digits, nodes=range(3))
    kinds = [m.metadata.message_type for m in grid.sent]
    assert [kinds.count(kind) for kind in ("query.hello", "query.share", "train")] == [3, 3, 6]
    weights = sum(leaf.numel() * leaf.element_size() for leaf in rows[-1].state["w"].values())
    assert weights * 3 <= rows[1].bytes_up < weights * 3 * 1.1  # and a header for every array
    assert rows[0].prepared["bytes"] == 3 * rows[0].prepared["shared"] * (64 + 8)
    assert rows[0].prepared["emd"] < rows[0].prepared["emd_before"] or math.isclose(rows[0].prepared["emd_before"], 0)
