"""Every way of training is held to the loop: ragged cohorts, every network, batch norm, dropout, momentum, decay."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedskew import models, rng
from fedskew.engine import folded, loop, stacked
from fedskew.engine.batches import Plan, cohort
from fedskew.engine.problem import Problem, weights
from fedskew.engine.seeded import with_seeded_dropout

CPU = torch.device("cpu")


class Foreign(nn.Module):
    """A user's network that no lowering knows: branches, a reshape, batch norm and dropout inside."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.gate = nn.Parameter(torch.tensor([0.3, 0.1, -0.2, 0.5]))
        self.drop = nn.Dropout(0.3)
        self.out = nn.Linear(4 * 8 * 8, 4)

    def forward(self, x):
        h = self.norm(self.conv(x))
        h = torch.sigmoid(h) * h + self.gate.view(1, 4, 1, 1)
        return self.out(self.drop(h).reshape(len(x), -1))


def foreign(shape, classes):
    return Foreign()


def problem_of(factory, shape, dtype=torch.float64, transform="none", **options):
    g = rng.stream(0, "problem")
    x = torch.from_numpy(g.normal(size=(60, *shape)))
    y = torch.from_numpy(g.integers(0, 4, 60))
    model = with_seeded_dropout(models.build(factory, shape, 4, seed=0)).to(dtype)
    return Problem(model, x.to(dtype), y, transform, dtype=dtype, **options)


def compare(problem, sizes, epochs, batch, lr=0.1, rtol=1e-10, way=stacked.local, transform="none"):
    parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    shape = tuple(problem.x.shape[1:])
    c = cohort(Plan(epochs, batch, False, transform, shape), range(len(sizes)), parts, lr, 0, 1, CPU)
    w, stats = weights(problem.model)
    slow, fast = loop.local(problem, w, stats, c), way(problem, w, stats, c)
    for key, value in slow.w.items():
        torch.testing.assert_close(fast.w[key], value, rtol=rtol, atol=rtol, msg=lambda m, key=key: f"{key}: {m}")
    for key, value in slow.stats.items():
        torch.testing.assert_close(fast.stats[key], value, rtol=rtol, atol=rtol, msg=lambda m, key=key: f"{key}: {m}")
    torch.testing.assert_close(fast.loss, slow.loss, rtol=max(rtol, 1e-9), atol=rtol)
    return slow, fast


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


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_equals_the_loop(name):
    factory, shape = NETWORKS[name]
    compare(problem_of(factory, shape, weight_decay=0.01, momentum=0.5), [7, 3, 5], epochs=2, batch=3)


def test_all_networks_of_ours_have_the_fast_form():
    for name, (factory, shape) in NETWORKS.items():
        lowered = folded.lower(with_seeded_dropout(models.build(factory, shape, 4, seed=0)))
        assert (lowered is None) == (name == "foreign"), name
    assert set(NETWORKS) - {"foreign"} == set(models.MODELS)


@settings(max_examples=25)
@given(ragged, st.integers(1, 3), st.integers(1, 6) | st.none(), st.sampled_from([0, 0.1]), st.sampled_from([0, 0.9]))
def test_ragged_cohorts_equal_the_loop(sizes, epochs, batch, weight_decay, momentum):
    compare(problem_of(models.softmax, (5,), weight_decay=weight_decay, momentum=momentum), sizes, epochs, batch)


@settings(max_examples=8)
@given(ragged.filter(lambda sizes: min(sizes) > 1), st.integers(2, 5))
@pytest.mark.parametrize("name", ["lahoti-cifar", "foreign"])
def test_batch_norm_and_dropout_on_ragged_cohorts(name, sizes, batch):
    if any(n % min(batch, n) == 1 and min(batch, n) > 1 for n in sizes):
        batch = max(sizes)  # torch refuses to normalise a batch of one example
    compare(problem_of(*NETWORKS[name], momentum=0.5), sizes, epochs=1, batch=batch)


def test_crops_and_flips_are_the_same():
    images = torch.from_numpy(rng.stream(0, "images").integers(0, 256, (60, 3, 12, 12), dtype=np.uint8))
    problem = replace(problem_of(models.cifar_cnn, (3, 9, 9)), x=images, transform="crop-flip")
    compare(problem, [7, 3], epochs=1, batch=4, transform="crop-flip")


@pytest.mark.parametrize("name", NETWORKS)
def test_single_precision_stays_close(name):
    factory, shape = NETWORKS[name]
    compare(problem_of(factory, shape, dtype=torch.float32), [6, 4], epochs=1, batch=2, rtol=2e-4)


def test_it_is_the_same_from_run_to_run():
    problems = [problem_of(*NETWORKS["lahoti-cifar"], dtype=torch.float32) for _ in range(2)]
    (_, one), (_, two) = (compare(problem, [7, 4], 1, 3, rtol=2e-4) for problem in problems)
    assert all(torch.equal(one.w[key], two.w[key]) for key in one.w)
