"""Clients with different optima, curvatures, sizes and steps: who ends at the optimum of all, and who does not."""

import pytest
import torch
from handmade import Quadratics

from fedskew.algorithms import parse_algorithm

SEEDS = range(3)


def distance(q, method, rounds, **how):
    return float((q.after(parse_algorithm(method), rounds, **how) - q.optimum).norm())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("method", ["scaffold", "scaffold:0.7", "feddyn:1"])
def test_the_fixed_point_is_the_global_optimum(method, seed):
    assert distance(Quadratics.random(seed), method, 100) < 1e-6


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("method", ["scaffold", "feddyn:1"])
def test_so_it_is_when_two_of_five_take_part_in_a_round(method, seed):
    assert distance(Quadratics.random(seed), method, 250, take_part=2) < 1e-6


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("method", ["fedavg", "fedprox:0.1", "fedavgm:0.5"])
def test_fedavg_and_what_only_damps_it_end_elsewhere(method, seed):
    q = Quadratics.random(seed)
    *_, before, last = (s["w"]["w"] for s in q.rounds(parse_algorithm(method), 100))
    torch.testing.assert_close(last, before, rtol=0, atol=1e-6)  # it has come to rest
    assert (last - q.optimum).norm() > 0.02


def test_with_few_clients_a_round_fedavg_does_not_come_to_rest_at_all():
    q = Quadratics.random(0)
    states = [s["w"]["w"] for s in q.rounds(parse_algorithm("fedavg"), 50, take_part=2)]
    assert (states[-1] - states[-2]).norm() > 0.02


@pytest.mark.parametrize("seed", SEEDS)
def test_fednova_mends_what_unequal_steps_do(seed):
    """Clients of one curvature that differ in steps: FedAvg leans to the busy ones, FedNova less (Wang et al. 2020).

    What is left is of the order of lr: local steps on a quadratic shrink, so that they are not quite alike.
    """
    q = Quadratics.random(seed)
    q = Quadratics(torch.ones_like(q.a), q.b, q.n, torch.tensor([1, 2, 8, 6, 4]))
    plain, nova = (distance(q, method, 150, lr=0.01) for method in ("fedavg", "fednova"))
    assert nova < 0.05 * plain


@pytest.mark.parametrize("method", ["scaffold", "feddyn:1"])
def test_the_optimum_is_left_by_nobody(method):
    """From the optimum, with every client's own gradient there in memory, nothing moves: the definition of fixed."""
    q, method = Quadratics.random(3), parse_algorithm(method)
    *_, s = q.rounds(method, 120)
    o = q.n.double() * 5 / q.n.sum() if method.kind == "feddyn" else torch.ones(5).double()
    name = "h" if method.kind == "feddyn" else "c"
    for k in range(5):
        torch.testing.assert_close(s[f"client.{k}.{name}"]["w"], o[k] * q.gradient(k, q.optimum), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(s[name]["w"], torch.zeros(3).double(), rtol=0, atol=1e-8)
