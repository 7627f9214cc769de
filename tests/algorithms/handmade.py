"""Cohorts and clients small enough to check by hand: quadratics, given ends, and real networks in double precision."""

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedskew import models, rng, tree
from fedskew.algorithms import parse_algorithm
from fedskew.engine import loop
from fedskew.engine.batches import Cohort, Plan, cohort
from fedskew.engine.problem import Problem, Task, Trained, weights

CPU = torch.device("cpu")
FEW = settings(max_examples=6)  # where every example trains a network
# One of each, with the options' defaults; what a cohort of any size and any weights can be given.
KINDS = ["fedavg", "fedavgm", "fedprox", "scaffold", "fednova", "feddyn", "fedadam", "fedyogi", "fedadagrad", "moon"]


def doubles(*values):
    return torch.tensor(values, dtype=torch.float64)


def cohort_of(n, steps=None, clients=None, lr=0.1, momentum=0.0, population=None):
    """Clients that hold n examples each and take so many local steps; there is no data behind them."""
    k = len(n)
    steps = [1] * k if steps is None else steps
    mask = torch.arange(max(steps)).unsqueeze(0) < torch.tensor(steps).unsqueeze(1)
    return Cohort(
        clients=tuple(range(k)) if clients is None else tuple(clients),
        n=torch.tensor(n),
        index=torch.zeros(k, max(steps), 1).long(),
        mask=mask.unsqueeze(2),
        draws=None,
        keys=torch.zeros(k).long(),
        lr=lr,
        momentum=momentum,
        population=(k, sum(n)) if population is None else population,
    )


def ending_at(*ends):
    """Clients that hand back these weights: a tree each, or one tensor each under the name `w`."""
    trees = [end if isinstance(end, dict) else {"w": end} for end in ends]
    return Trained(tree.stack(trees), {}, torch.zeros(len(trees)).double())


@dataclass(frozen=True)
class Quadratics:
    """Clients with F_k(w) = (w - b_k)' A_k (w - b_k) / 2, A_k diagonal; the global F weighs them by their examples."""

    a: Tensor  # (N, d)
    b: Tensor  # (N, d)
    n: Tensor  # (N,)
    steps: Tensor  # (N,)

    @classmethod
    def random(cls, seed, clients=5, d=3):
        g = rng.stream(seed, "quadratics")
        return cls(
            torch.from_numpy(np.exp(g.uniform(-1, 1, (clients, d)))),
            torch.from_numpy(g.normal(size=(clients, d))),
            torch.from_numpy(g.integers(5, 50, clients)),
            torch.from_numpy(g.integers(2, 7, clients)),
        )

    @property
    def optimum(self):
        weight = (self.n.double() / self.n.sum()).unsqueeze(1) * self.a
        return (weight * self.b).sum(dim=0) / weight.sum(dim=0)

    def gradient(self, k, w):
        return self.a[k] * (w - self.b[k])

    def train(self, w0, c, terms):
        """Each client's own number of steps w <- w - lr (A (w - b) + pull (w - w0) + shift), in closed form."""
        clients = list(c.clients)
        pull = 0 if terms.drift is None else terms.drift.pull.unsqueeze(1)
        shift = terms.drift.shift["w"] if terms.drift is not None and terms.drift.shift else 0
        slope, first = self.a[clients] + pull, self.gradient(clients, w0["w"]) + shift
        left = (1 - c.lr * slope) ** self.steps[clients].unsqueeze(1)
        return ending_at(*(w0["w"] - (1 - left) / slope * first))

    def cohort(self, clients, lr):
        n, steps = self.n[clients].tolist(), self.steps[clients].tolist()
        return cohort_of(n, steps, clients, lr, population=(len(self.n), int(self.n.sum())))

    def rounds(self, method, number, lr=0.1, take_part=None, seed=0):
        """The states after each round; `take_part` clients are sampled anew every round."""
        s = method.init({"w": torch.zeros_like(self.b[0])}, {})
        for t in range(number):
            everyone = len(self.n)
            clients = rng.stream(seed, "sample", t).choice(everyone, take_part or everyone, replace=False)
            c = self.cohort(sorted(clients.tolist()), lr)
            s = method.step(s, c, self.train(s["w"], c, method.terms(s, c)))
            yield s

    def after(self, method, number, **how):
        *_, s = self.rounds(method, number, **how)
        return s["w"]["w"]


def tiny(shape, classes, norm=False):
    """Five features, a hidden layer of six, with batch norm if asked."""
    middle = [nn.BatchNorm1d(6)] if norm else []
    return nn.Sequential(nn.Linear(5, 6), *middle, nn.Tanh(), nn.Linear(6, classes))


class Federation:
    """A real network on random data in double precision, trained by the loop, with clients of given sizes."""

    def __init__(self, sizes, batch=3, epochs=1, lr=0.3, norm=False, **options):
        g = rng.stream(1, "federation")
        total = sum(sizes)
        x, y = torch.from_numpy(g.normal(size=(total, 5))), torch.from_numpy(g.integers(0, 4, total))
        model = models.build(lambda: tiny((5,), 4, norm), (5,), 4, seed=0).double()
        self.problem = Problem(model, x, y, "none", dtype=torch.float64, **options)
        self.parts = np.split(np.arange(total), np.cumsum(sizes)[:-1])
        self.plan = (epochs, batch, False, "none", (5,))
        self.lr, self.w, self.stats = lr, *weights(model)

    def cohort(self, method, clients, t):
        y = self.problem.y.numpy()
        plan = Plan(
            *self.plan,
            balance=y if method.sampling == "balanced" else None,
            momentum=self.problem.momentum,
            counted=(y, 4) if method.counts_labels else None,
        )
        parts = [self.parts[k] for k in clients]
        population = len(self.parts), sum(map(len, self.parts))
        return cohort(plan, clients, parts, self.lr, 0, t, CPU, population)

    def train(self, s, c, terms):
        return loop.local(self.problem, Task(s["w"], s["stats"], c, terms))

    def rounds(self, method, schedule):
        """The state before the first round and after each one; `schedule` names the clients of every round."""
        s = method.init(self.w, self.stats)
        yield s
        for t, clients in enumerate(schedule, start=1):
            c = self.cohort(method, clients, t)
            s = method.step(s, c, self.train(s, c, method.terms(s, c)))
            yield s


@st.composite
def federations(draw, smallest=1, largest=8):
    """Ragged clients and the ones that take part in each of a few rounds."""
    sizes = draw(st.lists(st.integers(smallest, largest), min_size=2, max_size=4))
    some = st.sets(st.sampled_from(range(len(sizes))), min_size=1).map(sorted)
    return sizes, draw(st.lists(some, min_size=1, max_size=3))


def states(federation, method, schedule):
    """Before the first round and after each, as a list."""
    return list(federation.rounds(parse_algorithm(method), schedule))


def assert_same(a, b, within=1e-12):
    """Equal trees; bit for bit if `within` is 0."""
    assert list(a) == list(b)
    for name, leaf in a.items():
        if not torch.equal(leaf, b[name]):  # mostly they are, and assert_close takes its time
            torch.testing.assert_close(leaf, b[name], rtol=within, atol=within, msg=lambda m, name=name: f"{name}: {m}")
