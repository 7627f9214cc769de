"""Laws of the server step, on clients that hand back given weights."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedskew import tree
from fedskew.algorithms import SGD, FedAvg, FedAvgM, parse_algorithm
from fedskew.engine.batches import Cohort
from fedskew.engine.problem import Trained
from fedskew.errors import FedskewError


def cohort_of(n):
    k = len(n)
    none = torch.zeros(k, 1, 1)
    return Cohort(tuple(range(k)), torch.tensor(n), none.long(), none.bool(), None, torch.zeros(k).long(), 0.1)


def one_round(method, s, n, local):
    return method.step(s, cohort_of(n), local(s))


def moving_by(*steps):
    """A cohort whose client k ends at w + steps[k]."""

    def local(s):
        w, stats = s["w"], s["stats"]
        return Trained(
            tree.stack(tree.apply(lambda x, s=s: x + s, w) for s in steps),
            tree.stack(stats for _ in steps),
            torch.tensor(steps, dtype=torch.float64),
        )

    return local


def start():
    return {
        "a": torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64),
        "b": torch.tensor([[0.5]], dtype=torch.float64),
    }


def test_fedavg_averages_by_examples():
    s = one_round(FedAvg(), FedAvg().init(start(), {}), [3, 1], moving_by(0.0, 4.0))
    torch.testing.assert_close(s["w"], tree.apply(lambda x: x + 1, start()))


@given(st.floats(0, 0.99), st.booleans(), st.lists(st.floats(-1, 1), min_size=2, max_size=6))
def test_server_momentum_is_torch_sgd_on_the_pseudo_gradient(beta, plain, steps):
    method = FedAvgM(beta=beta, plain=plain)
    s = method.init(start(), {})
    parameters = [v.clone().requires_grad_() for v in start().values()]
    optimiser = torch.optim.SGD(parameters, lr=1.0, momentum=beta, nesterov=beta > 0 and not plain)
    for step in steps:
        s = one_round(method, s, [2, 5], moving_by(step, 2 * step))
        for p in parameters:
            p.grad = torch.full_like(p, -(2 * step + 5 * 2 * step) / 7)  # delta = w - average
        optimiser.step()
    for got, expected in zip(s["w"].values(), parameters, strict=True):
        torch.testing.assert_close(got, expected.detach())


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=4))
def test_without_momentum_it_is_fedavg(steps):
    plain, momentum = FedAvg(), FedAvgM(beta=0)
    s, m = plain.init(start(), {}), momentum.init(start(), {})
    for step in steps:
        s = one_round(plain, s, [1, 2], moving_by(step, -step))
        m = one_round(momentum, m, [1, 2], moving_by(step, -step))
    torch.testing.assert_close(s["w"], m["w"])


def test_batch_norm_statistics_are_averaged_without_momentum_and_counters_stay_integers():
    stats = {"var": torch.tensor([1.0]), "count": torch.tensor(4)}
    method = FedAvgM(beta=0.9)

    def shrinking(s):
        ends = [{"var": s["stats"]["var"] * f, "count": s["stats"]["count"] + 1} for f in (0.1, 0.3)]
        return Trained(tree.stack([s["w"]] * 2), tree.stack(ends), torch.zeros(2))

    s = method.init(start(), stats)
    for _ in range(20):
        s = one_round(method, s, [1, 1], shrinking)
    assert 0 < s["stats"]["var"].item() == pytest.approx(0.2**20)
    assert s["stats"]["count"].dtype == torch.int64
    assert s["stats"]["count"].item() == 24
    assert set(s["v"]) == {"a", "b"}


def test_short_forms():
    assert parse_algorithm("fedavg") == FedAvg()
    assert parse_algorithm("fedavgm:0.97,plain") == FedAvgM(beta=0.97, plain=True)
    assert parse_algorithm("sgd") == SGD()
    assert str(FedAvgM(beta=0.9)) == "fedavgm:0.9"
    with pytest.raises(FedskewError, match=r"beta = '1\.0': it should be less than 1"):
        parse_algorithm("fedavgm:1.0")
