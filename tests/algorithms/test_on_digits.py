"""Every method on real digits: ragged clients, some of them a round, shared data and warm-up, alone and together."""

import math

import pytest
import torch
from handmade import KINDS, assert_same
from torch import nn

from fedskew import Run, train, train_together
from fedskew.errors import FedskewError

OPTIONS = [
    *("median", "trimmed:0.2", "krum:1", "clip:0.1", "restricted:0.3", "adjusted:1", "balanced", "smoothing:0.1"),
    *("swa:0.5", "scaffold,mean=trimmed:0.3,loss=adjusted,sampling=balanced,keep=cpu", "fedadam,mean=median,swa=1"),
]
METHODS = [*KINDS, *OPTIONS, "sgd"]


def small(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, classes))


SMALL = {
    **{"data": "digits", "model": small, "examples": 300, "batch": 10, "lr": 0.2, "rounds": 3},
    **{"partition": "dirichlet-by-class:0.3,min_size=3", "clients": 8, "cohort": 5},
}
PREPARED = SMALL | {"share": "beta=0.1,alpha=0.5", "warm_up": "rounds=1"}


def together(runs):
    rows = [[] for _ in runs]
    for i, row in train_together(runs, device="cpu"):
        rows[i].append(row)
    return rows


def numbers(row):
    return {key: value for key, value in row.record().items() if key != "seconds"}


@pytest.fixture(scope="module")
def runs():
    return [Run(**PREPARED, algorithm=method) for method in METHODS]


@pytest.fixture(scope="module")
def fused(runs):
    return together(runs)


@pytest.mark.parametrize("method", METHODS)
def test_it_goes_with_shared_data_and_warm_up_and_together_with_all_others(method, runs, fused):
    i = METHODS.index(method)
    alone = list(train(runs[i], device="cpu"))
    assert [row.round for row in alone] == [0, 1, 2, 3]
    for a, b in zip(alone, fused[i], strict=True):
        assert math.isfinite(a.loss)
        assert math.isfinite(a.test_loss)
        assert all(leaf.isfinite().all() for leaf in a.state["w"].values())
        assert a.loss == pytest.approx(b.loss, rel=1e-4)
        assert a.test_loss == pytest.approx(b.test_loss, rel=1e-3)
        assert (a.clients, a.examples, a.bytes_up, a.emd) == (b.clients, b.examples, b.bytes_up, b.emd)
        assert list(a.state) == list(b.state)
        for key in a.state:  # v and the like too; Adam's roots magnify rounding
            for name, leaf in a.state[key].items():
                torch.testing.assert_close(leaf, b.state[key][name], rtol=1e-3, atol=1e-4)
    assert alone[1].clients == 5


def test_rows_are_the_same_from_time_to_time(runs, fused):
    again = together(runs)
    for a, b in zip(fused, again, strict=True):
        assert [numbers(row) for row in a] == [numbers(row) for row in b]
        for key in a[-1].state:
            assert_same(a[-1].state[key], b[-1].state[key], 0)


def test_no_two_methods_are_the_same(fused):
    """So that no option is silently dropped on its way to the clients: all but swa end at weights of their own."""
    ends = {
        method: torch.cat([x.flatten() for x in rows[-1].state["w"].values()])
        for method, rows in zip(METHODS, fused, strict=True)
        if method != "swa:0.5"
    }
    names = list(ends)
    for i, a in enumerate(names):
        for b in names[:i]:
            assert (ends[a] - ends[b]).abs().max() > 1e-5, (a, b)


def test_who_holds_every_class_restricts_none():
    """Label counts are those of what a client trains on, its draw of the shared set included."""
    everything = Run(**SMALL | {"share": "beta=0.2"}, algorithm="restricted:0.3")
    plain = Run(**SMALL | {"share": "beta=0.2"}, algorithm="fedavg")
    alone = Run(**SMALL, algorithm="restricted:0.3"), Run(**SMALL, algorithm="fedavg")
    a, b, c, d = (rows[-1].state["w"] for rows in together([everything, plain, *alone]))
    assert_same(a, b, 1e-5)
    assert max((c[k] - d[k]).abs().max() for k in c) > 1e-2


def test_scaffold_pays_twice_the_traffic(fused):
    bytes_up = {method: rows[-1].bytes_up for method, rows in zip(METHODS, fused, strict=True)}
    assert bytes_up["scaffold"] == 2 * bytes_up["fedavg"] == 2 * 5 * 4 * (64 * 12 + 12 + 12 * 10 + 10)
    assert bytes_up["sgd"] == 0


class Headed(nn.Module):
    """A user's own network, whose last layer is called `head`."""

    def __init__(self, classes):
        super().__init__()
        self.body, self.head = nn.Linear(64, 12), nn.Linear(12, classes)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x.flatten(1))))


class Headless(Headed):
    def __init__(self, classes):
        super().__init__(classes)
        self.last = self.head
        del self.head

    def forward(self, x):
        return self.last(torch.tanh(self.body(x.flatten(1))))


def test_moon_needs_features():
    for model, name in (("softmax", "Sequential"), (Headless, "Headless")):
        with pytest.raises(FedskewError, match=f"{name} has no feature extractor: moon needs layers with weights"):
            next(train(Run(**SMALL | {"model": model}, algorithm="moon"), device="cpu"))
        next(train(Run(**SMALL | {"model": model}, algorithm="scaffold"), device="cpu"))  # others do not ask


def test_moon_finds_the_features_of_a_foreign_network():
    runs = [Run(**SMALL | {"model": Headed}, algorithm=method) for method in ("moon:5", "moon:0", "fedavg")]
    moon, none, plain = (rows[-1].state["w"] for rows in together(runs))
    assert_same(none, plain, 1e-5)
    assert max((moon[k] - plain[k]).abs().max() for k in moon) > 1e-3
