"""The GPU kernels against torch, in Triton's interpreter; run by test_kernels.py with TRITON_INTERPRET=1."""

from dataclasses import replace

import numpy as np
import torch
from torch.nn import functional as F

from fedskew import models, rng, tree
from fedskew.data import transforms
from fedskew.engine import factors, graphed, kernels, loop, norms, softmax, stacked, stages, taps
from fedskew.engine.batches import Plan, cohort
from fedskew.engine.evaluate import Exam, evaluate, together
from fedskew.engine.problem import Problem, Task, weights
from fedskew.engine.seeded import with_seeded_dropout

STAGES = [  # (K, B, H, W, C, O, kernel, window)
    (2, 3, 9, 8, 3, 5, (5, 5), stages.Window((2, 2), pool=(3, 2, 1))),
    (2, 2, 8, 8, 16, 8, (3, 5), stages.Window((0, 1), pool=(2, 2, 0))),
    (1, 1, 6, 6, 40, 70, (3, 3), stages.Window((1, 1), pool=(3, 2, 1))),
    (1, 5, 6, 9, 96, 72, (2, 3), stages.Window((0, 1), pool=(2, 2, 0))),
    (2, 2, 9, 7, 4, 6, (4, 3), stages.Window((1, 0), stride=(2, 1))),
    (1, 2, 8, 8, 16, 16, (3, 3), stages.Window()),
    (2, 2, 6, 7, 8, 9, (3, 3), stages.Window((1, 1), relu=False)),
]


def normal(*shape):
    return torch.from_numpy(rng.stream(0, "kernels", *shape).normal(size=shape)).float().requires_grad_()


def one_client(x, weight, bias, window):
    y = F.conv2d(x.permute(0, 3, 1, 2), weight, bias, window.stride, window.padding)
    y = F.relu(y) if window.relu else y
    return (F.max_pool2d(y, *window.pool) if window.pool else y).permute(0, 2, 3, 1)


def exact_stages():
    for k, b, h, w, c, o, kernel, window in STAGES:
        x, weight, bias = normal(k, b, h, w, c), normal(k, o, c, *kernel), normal(k, o)
        y = stages.Stage.apply(x, weight, bias, window)
        above = normal(*y.shape).detach()
        expected = torch.stack([one_client(*each, window) for each in zip(x, weight, bias, strict=True)])
        torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
        got = torch.autograd.grad(y, (x, weight, bias), above)
        wanted = torch.autograd.grad(expected, (x, weight, bias), above)
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


def norms_of_clients():
    """Each client's batch norm is torch's own on its examples; padding is left out, and gets no gradient."""
    for k, b, h, w, c, real in ((3, 4, 3, 5, 6, (4, 3, 1)), (1, 2, 9, 8, 40, (2,)), (2, 5, 18, 16, 3, (5, 2))):
        x, weight, bias = normal(k, b, h, w, c), normal(k, c), normal(k, c)
        mask = torch.arange(b) < torch.tensor(real)[:, None]
        y, mean, variance = norms.NormRelu.apply(x, weight, bias, mask, 1e-5)
        above = normal(*y.shape).detach() * mask[:, :, None, None, None]
        got = torch.autograd.grad(y, (x, weight, bias), above)
        for i, n in enumerate(real):
            layer = torch.nn.BatchNorm2d(c, momentum=1.0)
            seen = x[i, :n].detach().permute(0, 3, 1, 2).requires_grad_()
            layer.weight.data, layer.bias.data = weight[i].detach(), bias[i].detach()
            expected = F.relu(layer(seen))
            torch.testing.assert_close(y[i, :n], expected.permute(0, 2, 3, 1), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close((mean[i], variance[i]), (layer.running_mean, layer.running_var))
            wanted = torch.autograd.grad(expected, (seen, layer.weight, layer.bias), above[i, :n].permute(0, 3, 1, 2))
            torch.testing.assert_close(got[0][i, :n], wanted[0].permute(0, 2, 3, 1), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close((got[1][i], got[2][i]), wanted[1:], rtol=1e-4, atol=1e-5)
            assert not got[0][i, n:].any()


def images():
    x = torch.from_numpy(rng.stream(0, "images").integers(0, 256, (10, 3, 12, 12), dtype=np.uint8))
    index, drawn = torch.tensor([[3, 0, 9], [1, 1, 2]]), torch.tensor([[[0, 3, 1]] * 3, [[2, 1, 0]] * 3]).short()
    got = kernels.images(x, index, drawn, (9, 9), torch.float32)
    expected = transforms.training("crop-flip", x[index.flatten()], drawn.flatten(0, 1))
    torch.testing.assert_close(got.flatten(0, 1), expected.permute(0, 2, 3, 1))


def scaled():
    """A factor is x times a power of two, rounded to 11 bits, whatever its size; zeros stay zeros."""
    x = torch.stack([normal(3000).detach() * size for size in (1e-20, 1.0, 1e20)] + [torch.zeros(3000)])
    y, scale = factors.factor(x)
    assert y.dtype == torch.float16
    assert (y.abs().amax(dim=1)[:3] <= 2**13).all()
    assert (y.abs().amax(dim=1)[:3] > 2**11).all()
    assert torch.equal(scale.log2(), scale.log2().round())
    small = x.abs() < x.abs().amax(dim=1, keepdim=True) * 2**-20  # below float16's range, and of no weight in a sum
    torch.testing.assert_close((y.double() / scale.double()[:, None])[~small], x.double()[~small], rtol=2**-10, atol=0)


def rounded_stages():
    """In TF32 a product's factors are rounded to 11 bits; gradients of very different clients keep their precision."""
    torch.set_float32_matmul_precision("high")
    for k, b, h, w, c, o, kernel, window in STAGES[:2]:
        x, weight, bias = normal(k, b, h, w, c), normal(k, o, c, *kernel), normal(k, o)
        sizes = torch.tensor([1e-6, 1e3])[:k].reshape(-1, 1, 1, 1, 1)
        y = stages.Stage.apply(x, weight, bias, window)
        above = normal(*y.shape).detach() * sizes
        expected = torch.stack([one_client(*each, window) for each in zip(x, weight, bias, strict=True)])
        got = torch.autograd.grad(y, (x, weight, bias), above)
        wanted = torch.autograd.grad(expected, (x, weight, bias), above)
        for a, e in zip((y, *got), (expected, *wanted), strict=True):
            error = (a - e).flatten(1).norm(dim=1) / e.flatten(1).norm(dim=1)
            assert (error < 2e-3).all(), error
            assert y.dtype == torch.float32
    torch.set_float32_matmul_precision("highest")


def boxes():
    """Boxes that fit leave nothing over; those of a batch that is no power of two, little."""
    assert taps.box(8, 12, 12) == (4, 4, 4)
    for images, rows, columns in ((10, 12, 12), (100, 14, 14), (64, 12, 12)):
        covered = [
            -(-n // side) * side
            for n, side in zip((images, rows, columns), taps.box(images, rows, columns), strict=True)
        ]
        assert np.prod(covered) <= 1.6 * images * rows * columns, (images, rows, columns)


def linear():
    x, weight, bias = normal(2, 3, 5), normal(2, 4, 5), normal(2, 4)
    y, expected = kernels.Linear.apply(x, weight, bias), torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))
    above = normal(*y.shape).detach()
    both = (torch.autograd.grad(v, (x, weight, bias), above) for v in (y, expected))
    torch.testing.assert_close(*both)


def loss():
    z, y = normal(2, 21, 5), torch.from_numpy(rng.stream(0, "labels").integers(0, 5, (2, 21)))
    mask = torch.arange(21) < torch.tensor([[21], [4]])
    rates = torch.tensor([0.5, 0.0], dtype=torch.float64)
    each, d = softmax.cross_entropy(z.detach(), y, mask, rates)
    expected = F.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="none").view(2, 21) * mask
    torch.testing.assert_close(each, expected.detach())
    mean = expected.sum(dim=1) / mask.sum(dim=1)
    (wanted,) = torch.autograd.grad((mean * rates.float()).sum(), z)
    torch.testing.assert_close(d, wanted, rtol=1e-4, atol=1e-7)


def network(factory, shape, transform, sizes=(2, 1), **options):
    """A whole round on our kernels equals the loop: ragged clients, in batches of two."""
    g = rng.stream(0, "network")
    x = torch.from_numpy(g.integers(0, 256, (12, *shape), dtype=np.uint8))
    y = torch.from_numpy(g.integers(0, 4, 12))
    seen = transforms.output_shape(transform, shape)
    model = with_seeded_dropout(models.build(factory, seen, 4, seed=0))
    problem = Problem(model, x, y, transform, **options)
    ways = graphed.ways_of(problem)
    assert ways.examples is not stacked.inputs, "our kernels do not fit this network"
    parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    c = cohort(Plan(1, 2, False, transform, shape), [0, 1], parts, 0.05, 0, 1, torch.device("cpu"))
    w, stats = weights(problem.model)
    (fast,) = stacked.many(problem, [Task(w, stats, c)], ways)
    slow = loop.local(replace(problem), Task(w, stats, c))
    torch.testing.assert_close(fast.w, slow.w, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(fast.stats, slow.stats, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(fast.loss, slow.loss, rtol=1e-4, atol=1e-4)
    exams(problem, slow)


def exams(problem, trained):
    """All clients' weights are scored on our kernels as each is alone."""
    x, y = problem.x[:2], problem.y[:2]
    asked = [Exam(tree.one(trained.w, k), tree.one(trained.stats, k), x, y, 4) for k in range(len(trained.loss))]
    found = together(problem, graphed.on_kernels(problem), asked)
    expected = [evaluate(problem, exam) for exam in asked]
    assert [s.accuracy for s in found] == [s.accuracy for s in expected]
    np.testing.assert_allclose([s.loss for s in found], [s.loss for s in expected], rtol=1e-4)


if __name__ == "__main__":
    torch.set_float32_matmul_precision("high")
    scaled()
    torch.set_float32_matmul_precision("highest")
    exact_stages()
    norms_of_clients()
    images()
    rounded_stages()
    boxes()
    linear()
    loss()
    network(models.cifar_cnn, (3, 6, 6), "crop-flip", sizes=(3, 2), momentum=0.5, weight_decay=0.1)
    network(models.mnist_cnn, (1, 8, 8), "scale")
    network(models.kws_cnn, (1, 20, 7), "scale")
    network(models.lahoti_mnist, (1, 16, 16), "scale")
    network(models.lahoti_cifar, (3, 6, 6), "crop-flip")
    print("every kernel agrees")
