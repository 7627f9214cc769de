"""The networks and the comparison by which every way of training is held to the loop."""

import numpy as np
import torch
from hypothesis import strategies as st
from torch import nn

from fedskew import models, rng
from fedskew.engine import loop
from fedskew.engine.batches import Plan, cohort
from fedskew.engine.problem import Problem, Task, weights
from fedskew.engine.seeded import with_seeded_dropout
from fedskew.engine.terms import PLAIN, Contrast, Drift, Logits, Terms

CPU = torch.device("cpu")
# Channels-last and stacked kernels add in another order: a float32 weight of size one is off by 1e-5 after a few steps
# of a tiny network, and a max-pool that flips moves it further.
SINGLE = 2e-4


class Foreign(nn.Module):
    """A user's network that no lowering knows: branches, a reshape, batch norm and dropout inside."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.gate = nn.Parameter(torch.tensor([0.3, 0.1, -0.2, 0.5]))
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(4 * 8 * 8, 4)

    def forward(self, x):
        h = self.norm(self.conv(x))
        h = torch.sigmoid(h) * h + self.gate.view(1, 4, 1, 1)
        return self.head(self.drop(h).reshape(len(x), -1))


def foreign(shape, classes):
    return Foreign()


NETWORKS = {
    "softmax": (models.softmax, (5,)),
    "mlp": (models.mlp, (1, 4, 4)),
    "mnist-cnn": (models.mnist_cnn, (1, 8, 8)),
    "cifar-cnn": (models.cifar_cnn, (3, 8, 8)),
    "kws-cnn": (models.kws_cnn, (1, 22, 8)),
    "lahoti-mnist": (models.lahoti_mnist, (1, 16, 16)),
    "lahoti-cifar": (models.lahoti_cifar, (3, 8, 8)),
    "resnet8": (models.resnet8, (3, 8, 8)),
    "resnet20": (models.resnet20, (3, 8, 8)),
    "foreign": (foreign, (3, 8, 8)),
}
ragged = st.lists(st.integers(1, 12), min_size=1, max_size=5)


def problem_of(factory, shape, dtype=torch.float64, transform="none", **options):
    g = rng.stream(0, "problem")
    x = torch.from_numpy(g.normal(size=(60, *shape)))
    y = torch.from_numpy(g.integers(0, 4, 60))
    model = with_seeded_dropout(models.build(factory, shape, 4, seed=0)).to(dtype)
    return Problem(model, x.to(dtype), y, transform, dtype=dtype, **options)


def cohort_of(problem, sizes, epochs=1, batch=3, lr=0.1):
    parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    plan = Plan(epochs, batch, False, problem.transform, tuple(problem.x.shape[1:]))
    return cohort(plan, range(len(sizes)), parts, lr, 0, 1, CPU)


def terms_of(problem, clients, *parts):
    """Random terms of these kinds for a cohort: "pull", "shift", "logits", "contrast"."""
    g = torch.Generator().manual_seed(0)

    def random(*shape):
        return torch.rand(clients, *shape, generator=g, dtype=torch.float64).to(problem.dtype)

    w, _ = weights(problem.model)
    near = {key: leaf + 0.1 * random(*leaf.shape) for key, leaf in w.items()}
    shift = {key: random(*leaf.shape) - 0.5 for key, leaf in w.items()} if "shift" in parts else {}
    pull = random() if "pull" in parts else torch.zeros(clients, dtype=problem.dtype)
    return Terms(
        drift=Drift(pull, shift) if {"pull", "shift"} & set(parts) else None,
        logits=Logits(random(4), random(4), random() / 2) if "logits" in parts else None,
        contrast=Contrast(near, 1 + random(), 0.5 + random()) if "contrast" in parts else None,
    )


def compare(way, problem, sizes, epochs=1, batch=3, lr=0.1, rtol=1e-10, terms=PLAIN):
    """Train with the loop and with `way`; both results, once they agree."""
    c = cohort_of(problem, sizes, epochs, batch, lr)
    w, stats = weights(problem.model)
    task = Task(w, stats, c, terms)
    slow, fast = loop.local(problem, task), way(problem, task)
    assert list(fast.w) == list(slow.w)
    assert list(fast.stats) == list(slow.stats)
    for key, value in (slow.w | slow.stats).items():
        found = (fast.w | fast.stats)[key]
        torch.testing.assert_close(found, value, rtol=rtol, atol=rtol, msg=lambda m, key=key: f"{key}: {m}")
    torch.testing.assert_close(fast.loss, slow.loss, rtol=max(rtol, 1e-9), atol=rtol)
    return slow, fast
