"""The GPU kernels against torch, in Triton's interpreter; run by test_kernels.py with TRITON_INTERPRET=1."""

from dataclasses import replace

import numpy as np
import torch
from torch.nn import functional as F

from fedskew import models, rng, tree
from fedskew.data import transforms
from fedskew.engine import graphed, kernels, loop, stacked
from fedskew.engine.batches import Plan, cohort
from fedskew.engine.evaluate import Exam, evaluate, together
from fedskew.engine.problem import Problem, Task, weights

STAGES = [  # (K, B, H, W, C, O, kernel, padding, pool)
    (2, 3, 9, 8, 3, 5, (5, 5), (2, 2), (3, 2, 1)),
    (2, 2, 8, 8, 16, 8, (3, 5), (0, 1), (2, 2, 0)),
    (1, 1, 6, 6, 40, 70, (3, 3), (1, 1), (3, 2, 1)),
]


def normal(*shape):
    return torch.from_numpy(rng.stream(0, "kernels", *shape).normal(size=shape)).float().requires_grad_()


def stages():
    for k, b, h, w, c, o, kernel, padding, pool in STAGES:
        x, weight, bias = normal(k, b, h, w, c), normal(k, o, c, *kernel), normal(k, o)
        y = kernels.ConvReluPool.apply(x, weight, bias, padding, pool)
        above = normal(*y.shape).detach()
        images = (x[i].permute(0, 3, 1, 2) for i in range(k))
        convolved = (F.conv2d(v, weight[i], bias[i], padding=padding) for i, v in enumerate(images))
        expected = torch.stack([F.max_pool2d(F.relu(v), *pool).permute(0, 2, 3, 1) for v in convolved])
        torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
        got = torch.autograd.grad(y, (x, weight, bias), above)
        wanted = torch.autograd.grad(expected, (x, weight, bias), above)
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


def images():
    x = torch.from_numpy(rng.stream(0, "images").integers(0, 256, (10, 3, 12, 12), dtype=np.uint8))
    index, drawn = torch.tensor([[3, 0, 9], [1, 1, 2]]), torch.tensor([[[0, 3, 1]] * 3, [[2, 1, 0]] * 3]).short()
    got = kernels.images(x, index, drawn, (9, 9), torch.float32)
    expected = transforms.training("crop-flip", x[index.flatten()], drawn.flatten(0, 1))
    torch.testing.assert_close(got.flatten(0, 1), expected.permute(0, 2, 3, 1))


def halves():
    x = normal(3000).detach() * 100
    high, low = kernels._halves(x)
    assert high.dtype == low.dtype == torch.bfloat16
    torch.testing.assert_close(
        high.float() + low.float(), x, rtol=2**-15, atol=0
    )  # the interpreter rounds towards zero


def linear():
    x, weight, bias = normal(2, 3, 5), normal(2, 4, 5), normal(2, 4)
    y, expected = kernels.Linear.apply(x, weight, bias), torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))
    above = normal(*y.shape).detach()
    both = (torch.autograd.grad(v, (x, weight, bias), above) for v in (y, expected))
    torch.testing.assert_close(*both)


def network(factory, shape, transform, **options):
    """A whole round on our kernels equals the loop: ragged clients, momentum, weight decay."""
    g = rng.stream(0, "network")
    x = torch.from_numpy(g.integers(0, 256, (12, *shape), dtype=np.uint8))
    y = torch.from_numpy(g.integers(0, 4, 12))
    seen = transforms.output_shape(transform, shape)
    problem = Problem(models.build(factory, seen, 4, seed=0), x, y, transform, **options)
    ways = graphed.ways_of(problem)
    assert ways.examples is not stacked.inputs, "our kernels do not fit this network"
    parts = [np.arange(0, 5), np.arange(5, 8)]
    c = cohort(Plan(1, 2, False, transform, shape), [0, 1], parts, 0.05, 0, 1, torch.device("cpu"))
    w, stats = weights(problem.model)
    (fast,) = stacked.many(problem, [Task(w, stats, c)], ways)
    slow = loop.local(replace(problem), Task(w, stats, c))
    torch.testing.assert_close(fast.w, slow.w, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(fast.loss, slow.loss, rtol=1e-4, atol=1e-4)
    exams(problem, slow)


def exams(problem, trained):
    """All clients' weights are scored on our kernels as each is alone."""
    x, y = problem.x[:5], problem.y[:5]
    asked = [Exam(tree.one(trained.w, k), {}, x, y, 4) for k in range(len(trained.loss))]
    found = together(problem, graphed.on_kernels(problem), asked)
    expected = [evaluate(problem, exam) for exam in asked]
    assert [s.accuracy for s in found] == [s.accuracy for s in expected]
    np.testing.assert_allclose([s.loss for s in found], [s.loss for s in expected], rtol=1e-4)


if __name__ == "__main__":
    torch.set_float32_matmul_precision("highest")
    stages()
    images()
    halves()
    linear()
    network(models.cifar_cnn, (3, 8, 8), "crop-flip", momentum=0.5, weight_decay=0.1)
    network(models.mnist_cnn, (1, 8, 8), "scale")
    print("every kernel agrees")
