"""The oracle against SGD written out by hand on a network small enough to follow."""

import numpy as np
import pytest
import torch
from torch import nn

from fedskew import models, rng
from fedskew.engine import loop
from fedskew.engine.batches import Plan, cohort
from fedskew.engine.problem import Problem, Task, weights

CPU = torch.device("cpu")


def problem_of(factory=models.softmax, shape=(3,), n=40, classes=4, **options):
    g = rng.stream(0, "problem")
    x = torch.from_numpy(g.normal(size=(n, *shape)))
    y = torch.from_numpy(g.integers(0, classes, n))
    model = models.build(factory, shape, classes, seed=0).double()
    return Problem(model, x, y, "none", dtype=torch.float64, **options)


def test_local_steps_are_sgd_with_momentum_and_weight_decay():
    problem = problem_of(weight_decay=0.1, momentum=0.5)
    c = cohort(Plan(2, 4, False, "none", (3,)), [0], [np.arange(10)], 0.3, 0, 1, CPU)
    w, stats = weights(problem.model)
    got = loop.local(problem, Task(w, stats, c))

    weight, bias = w["fc.weight"].clone(), w["fc.bias"].clone()
    m_w, m_b = torch.zeros_like(weight), torch.zeros_like(bias)
    losses = []
    for index, mask in zip(c.index[0], c.mask[0], strict=True):
        x, y = problem.x[index[mask]], problem.y[index[mask]]
        p = torch.softmax(x @ weight.T + bias, dim=1)
        losses += (-torch.log(p[torch.arange(len(y)), y])).tolist()
        error = (p - nn.functional.one_hot(y, 4)) / len(y)
        m_w = 0.5 * m_w + error.T @ x + 0.1 * weight
        m_b = 0.5 * m_b + error.sum(dim=0) + 0.1 * bias
        weight, bias = weight - 0.3 * m_w, bias - 0.3 * m_b
    torch.testing.assert_close(got.w["fc.weight"][0], weight)
    torch.testing.assert_close(got.w["fc.bias"][0], bias)
    assert got.loss.item() == pytest.approx(np.mean(losses))


def test_clients_do_not_see_each_other():
    problem = problem_of()
    w, stats = weights(problem.model)
    parts = [np.arange(0, 10), np.arange(10, 13), np.arange(13, 40)]
    plan = Plan(1, 4, False, "none", (3,))
    together = loop.local(problem, Task(w, stats, cohort(plan, [0, 1, 2], parts, 0.1, 0, 1, CPU)))
    for k in range(3):
        alone = loop.local(problem, Task(w, stats, cohort(plan, [k], [parts[k]], 0.1, 0, 1, CPU)))
        assert torch.equal(together.w["fc.weight"][k], alone.w["fc.weight"][0])
        assert together.loss[k] == alone.loss[0]


def test_the_weights_sent_out_are_left_alone():
    problem = problem_of()
    w, stats = weights(problem.model)
    before = {k: v.clone() for k, v in w.items()}
    loop.local(problem, Task(w, stats, cohort(Plan(1, 4, False, "none", (3,)), [0], [np.arange(40)], 0.1, 0, 1, CPU)))
    assert all(torch.equal(w[k], before[k]) for k in w)


def test_batch_norm_statistics_come_back_and_dropout_is_seeded():
    problem = problem_of(models.lahoti_cifar, shape=(3, 8, 8), n=12)
    w, stats = weights(problem.model)
    c = cohort(Plan(1, 4, False, "none", (3, 8, 8)), [0, 1], [np.arange(8), np.arange(8, 12)], 0.1, 0, 1, CPU)
    one, two = (loop.local(problem, Task(w, stats, c)) for _ in range(2))
    assert one.stats["norm1.num_batches_tracked"].tolist() == [2, 1]
    assert not torch.equal(one.stats["norm1.running_mean"][0], stats["norm1.running_mean"])
    assert all(torch.equal(one.w[k], two.w[k]) for k in one.w)
    other = cohort(Plan(1, 4, False, "none", (3, 8, 8)), [0, 1], [np.arange(8), np.arange(8, 12)], 0.1, 1, 1, CPU)
    assert not torch.equal(loop.local(problem, Task(w, stats, other)).w["fc2.weight"], one.w["fc2.weight"])


def test_training_leaves_the_global_generator_alone():
    problem = problem_of(models.lahoti_cifar, shape=(3, 8, 8), n=12)
    w, stats = weights(problem.model)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    loop.local(
        problem, Task(w, stats, cohort(Plan(1, 4, False, "none", (3, 8, 8)), [0], [np.arange(12)], 0.1, 0, 1, CPU))
    )
    assert torch.equal(torch.rand(2), expected)
