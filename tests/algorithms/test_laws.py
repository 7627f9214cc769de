"""Where a method's own part is switched off it is FedAvg; and what the options of every method do."""

import numpy as np
import pytest
import torch
from handmade import FEW, Federation, assert_same, federations, states
from hypothesis import given
from hypothesis import strategies as st

from fedskew.algorithms import FedAvg, parse_algorithm
from fedskew.algorithms.state import swa


@pytest.mark.parametrize("method", ["fedprox:0", "smoothing:0", "fedavg,swa=0", "fedavgm:0", "fedavgm:0,plain"])
@FEW
@given(federations())
def test_switched_off_it_is_fedavg_in_every_bit_of_training(method, given_):
    sizes, schedule = given_
    federation = Federation(sizes, momentum=0.5, weight_decay=0.01)
    within = 1e-12 if "fedavgm" in method else 0  # w - (w - average) may round
    for a, b in zip(states(federation, method, schedule), states(federation, "fedavg", schedule), strict=True):
        assert_same(a["w"], b["w"], within)


@pytest.mark.parametrize("method", ["moon:0", "restricted:1", "fedrs:1", "adjusted:0", "clip:1e6"])
@FEW
@given(federations())
def test_switched_off_it_is_fedavg(method, given_):
    sizes, schedule = given_
    federation = Federation(sizes, epochs=2, momentum=0.5, weight_decay=0.01)
    for a, b in zip(states(federation, method, schedule), states(federation, "fedavg", schedule), strict=True):
        assert_same(a["w"], b["w"])


def test_switched_on_it_is_not():
    """So that the two laws above compare something: every option moves the weights, with every client ragged."""
    federation, schedule = Federation([3, 8, 5, 2], epochs=2), [[0, 1, 2], [1, 3], [0, 1, 2, 3]]
    plain = states(federation, "fedavg", schedule)[-1]["w"]
    for method in (
        *("fedprox:1", "smoothing:0.1", "moon:1", "restricted:0.5", "adjusted:1", "clip:0.1", "balanced", "median"),
        *("scaffold", "scaffold:0.5", "fednova", "feddyn:1", "fedavgm:0.5", "fedadam", "trimmed:0.26"),
    ):
        moved = states(federation, method, schedule)[-1]["w"]
        assert max((moved[k] - plain[k]).abs().max() for k in plain) > 1e-3, method


@FEW
@given(st.integers(1, 6), st.integers(2, 4))
def test_trimming_nothing_is_fedavg_where_clients_are_of_one_size(size, clients):
    federation, schedule = Federation([size] * clients), [range(clients), [0, 1], [clients - 1]]
    assert_same(
        states(federation, "trimmed:0", schedule)[-1]["w"], states(federation, "fedavg", schedule)[-1]["w"], 1e-12
    )


def test_the_losses_of_clients_that_lack_classes():
    counts = torch.tensor([[9.0, 0.0, 1.0], [0.0, 0.0, 4.0]])
    scale, offset = parse_algorithm("restricted:0.3").loss(counts)
    torch.testing.assert_close(scale, torch.tensor([[1, 0.3, 1], [0.3, 0.3, 1]]))
    assert not offset.any()
    scale, offset = parse_algorithm("adjusted:2").loss(counts)
    assert (scale == 1).all()
    p = np.array([[10, 1, 2], [1, 1, 5]]) / [[13], [7]]
    torch.testing.assert_close(offset, torch.from_numpy(2 * np.log(p)).float())


def test_restricted_softmax_keeps_a_one_class_clients_other_outputs_nearer():
    """FedRS's point: with alpha = 0 the outputs of classes that a client lacks are not pushed at all."""
    federation = Federation([6])
    federation.problem.y[:] = 1
    pushed = {
        method: (states(federation, method, [[0]])[-1]["w"]["2.bias"] - federation.w["2.bias"]).abs()
        for method in ("fedavg", "restricted:0.5", "restricted:0")
    }
    missing = [0, 2, 3]
    assert (pushed["restricted:0"][missing] == 0).all()
    assert (pushed["restricted:0.5"][missing] > 0).all()
    assert (pushed["restricted:0.5"][missing] < pushed["fedavg"][missing]).all()


@given(st.integers(1, 12), st.floats(0.01, 1), st.integers(0, 1000))
def test_swa_is_the_mean_of_the_last_rounds(rounds, share, seed):
    w = torch.randn(rounds, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    last = max(1, round(share * rounds))
    kept = {}
    for t in range(1, rounds + 1):
        s = {"w": {"a": w[t - 1]}, "stats": {"count": torch.tensor(3 * t)}}
        s = swa(s | kept, t, rounds, share)
        assert_same(s["w"], {"a": w[t - 1]}, 0)
        kept = {key: s[key] for key in s if key.startswith("swa.")}
        assert bool(kept) == (t > rounds - last)
    torch.testing.assert_close(kept["swa.w"]["a"], w[rounds - last :].mean(dim=0))
    assert kept["swa.stats"]["count"].item() == 3 * rounds  # a counter has no mean


def drawn_labels(labels, epochs, seed=0):
    """What a client with these labels goes through in balanced epochs."""
    federation = Federation([len(labels)], batch=None, epochs=epochs)
    federation.problem.y[:] = torch.tensor(labels)
    c = federation.cohort(parse_algorithm("balanced"), [0], seed)
    return c.index, federation.problem.y[c.index[c.mask]]


def test_balanced_sampling_draws_a_clients_classes_equally():
    labels = [0] * 40 + [1] * 8 + [3] * 2
    index, drawn = drawn_labels(labels, epochs=200)
    assert len(drawn) == 200 * 50  # as many as the client holds, an epoch
    counts = torch.bincount(drawn, minlength=4).tolist()
    assert counts[2] == 0  # a class that the client lacks stays away
    for c in (0, 1, 3):  # ten thousand draws: a third each, give or take seven deviations of 47
        assert abs(counts[c] - 10_000 / 3) < 330
    of_the_first_class = torch.bincount(index.flatten(), minlength=50)[:40]
    assert of_the_first_class.min() > 0  # and inside a class every example is as likely
    assert of_the_first_class.max() < 3 * 10_000 / 3 / 40
    assert torch.equal(index, drawn_labels(labels, epochs=200)[0])
    assert not torch.equal(index, drawn_labels(labels, epochs=200, seed=1)[0])


def test_fedavg_shuffles():
    federation = Federation([7], batch=None)
    assert sorted(federation.cohort(FedAvg(), [0], 1).index.flatten().tolist()) == list(range(7))
