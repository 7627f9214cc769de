"""What a method adds to plain SGD, in every way of training, held to the loop; and the loop held to the formulas."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import NETWORKS, cohort_of, compare, problem_of, ragged, terms_of
from torch.nn.functional import cosine_similarity, cross_entropy

from fedskew import tree
from fedskew.engine import loop, stacked, threaded
from fedskew.engine.choose import Fitting
from fedskew.engine.problem import Task, weights
from fedskew.engine.terms import Contrast, Drift, Logits, Terms

WAYS = {"stacked": stacked.local, "threaded": threaded.local}
PARTS = [("pull",), ("shift",), ("pull", "shift"), ("logits",), ("contrast",), ("pull", "shift", "logits", "contrast")]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("parts", PARTS, ids="+".join)
@pytest.mark.parametrize("name", ["mlp", "mnist-cnn", "lahoti-cifar", "foreign"])
def test_terms_equal_the_loop(name, parts, way):
    problem = problem_of(*NETWORKS[name], weight_decay=0.01, momentum=0.5)
    compare(WAYS[way], problem, [7, 3, 5], batch=4, terms=terms_of(problem, 3, *parts))


@settings(max_examples=15)
@given(ragged, st.sampled_from(PARTS), st.sampled_from([0, 0.1]), st.sampled_from([0, 0.9]))
@pytest.mark.parametrize("way", WAYS)
def test_terms_on_ragged_cohorts_equal_the_loop(way, sizes, parts, weight_decay, momentum):
    problem = problem_of(*NETWORKS["mlp"], weight_decay=weight_decay, momentum=momentum)
    compare(WAYS[way], problem, sizes, epochs=2, terms=terms_of(problem, len(sizes), *parts))


def one_step(terms, sizes=(4,)):
    """A single full-batch step of the loop: the problem, the task and what came of it."""
    problem = problem_of(*NETWORKS["mlp"])
    w, stats = weights(problem.model)
    task = Task(w, stats, cohort_of(problem, sizes, batch=None, lr=0.5), terms)
    return problem, task, loop.local(problem, task)


def gradient(problem, w, loss):
    leaves = {name: leaf.clone().requires_grad_() for name, leaf in w.items()}
    return dict(zip(leaves, torch.autograd.grad(loss(leaves), list(leaves.values())), strict=True))


def call(problem, w, x):
    return torch.func.functional_call(problem.model, w, (x,))


def test_drift_is_added_to_the_gradient():
    ones = {
        name: torch.ones_like(leaf).unsqueeze(0)
        for name, leaf in weights(problem_of(*NETWORKS["mlp"]).model)[0].items()
    }
    _, _, plain = one_step(Terms())
    _, task, moved = one_step(Terms(drift=Drift(torch.tensor([3.0]).double(), ones)))
    for name, leaf in moved.w.items():  # at the first step w = w0, so that only the shift shows
        torch.testing.assert_close(leaf, plain.w[name] - task.cohort.lr)
    problem = problem_of(*NETWORKS["mlp"])
    w, stats = weights(problem.model)
    c = cohort_of(problem, (4,), epochs=2, batch=None, lr=0.5)
    got = loop.local(problem, Task(w, stats, c, Terms(drift=Drift(torch.tensor([3.0]).double(), {})))).w
    x, y = problem.x[c.index[0]], problem.y[c.index[0]]
    first = tree.add(w, gradient(problem, w, lambda v: cross_entropy(call(problem, v, x[0]), y[0])), -0.5)
    second = gradient(problem, first, lambda v: cross_entropy(call(problem, v, x[1]), y[1]))
    expected = tree.sub(tree.add(first, second, -0.5), tree.apply(lambda a, b: 1.5 * (a - b), first, w))
    for name, leaf in expected.items():
        torch.testing.assert_close(got[name][0], leaf)


def test_logits_are_scaled_shifted_and_smoothed_as_torch_does():
    scale, offset = torch.rand(1, 4).double(), torch.rand(1, 4).double()
    logits = Logits(scale, offset, torch.tensor([0.2]).double())
    problem, task, got = one_step(Terms(logits=logits))
    x, y = problem.x[task.cohort.index[0, 0]], problem.y[task.cohort.index[0, 0]]

    def loss(v):
        return cross_entropy(call(problem, v, x) * scale + offset, y, label_smoothing=0.2)

    expected = tree.add(task.w, gradient(problem, task.w, loss), -0.5)
    for name, leaf in expected.items():
        torch.testing.assert_close(got.w[name][0], leaf)
    torch.testing.assert_close(got.loss[0], loss(task.w))


def test_contrast_is_moons():
    """-log(e^(near/T) / (e^(near/T) + e^(far/T))), mean over the batch, times mu."""
    problem = problem_of(*NETWORKS["mlp"])
    w, stats = weights(problem.model)
    previous = {name: 1.5 * leaf.flip(0) for name, leaf in w.items()}
    at = Contrast(tree.stack([previous]), torch.tensor([2.0]).double(), torch.tensor([0.5]).double())
    c = cohort_of(problem, (4,), batch=None, lr=0.5)
    got = loop.local(problem, Task(w, stats, c, Terms(contrast=at)))
    x, y = problem.x[c.index[0, 0]], problem.y[c.index[0, 0]]

    def features(v):
        h = torch.relu(x.flatten(1) @ v["fc1.weight"].T + v["fc1.bias"])
        return torch.relu(h @ v["fc2.weight"].T + v["fc2.bias"])

    def loss(v):
        near, far = (torch.exp(cosine_similarity(features(v), features(o)) / 0.5) for o in (w, previous))
        return cross_entropy(call(problem, v, x), y) + 2.0 * -torch.log(near / (near + far)).mean()

    expected = tree.add(w, gradient(problem, w, loss), -0.5)
    for name, leaf in expected.items():
        torch.testing.assert_close(got.w[name][0], leaf)


def test_runs_with_and_without_terms_train_together():
    problem = problem_of(*NETWORKS["mlp"], weight_decay=0.01)
    w, stats = weights(problem.model)
    tasks = [
        Task(w, stats, cohort_of(problem, [5, 3]), terms_of(problem, 2, *parts))
        for parts in ((), ("pull",), ("shift", "logits"), ("contrast",))
    ]
    for task, fused in zip(tasks, stacked.many(problem, tasks), strict=True):
        alone = loop.local(problem, task)
        for name, leaf in alone.w.items():
            torch.testing.assert_close(fused.w[name], leaf, rtol=1e-10, atol=1e-10)


def test_a_cohort_in_parts_takes_its_terms_along():
    problem = problem_of(*NETWORKS["mlp"])
    w, stats = weights(problem.model)
    task = Task(w, stats, cohort_of(problem, [5, 3, 4]), terms_of(problem, 3, "pull", "shift", "logits", "contrast"))
    fitting = Fitting(lambda tasks: stacked.many(problem, tasks))
    whole = fitting([task])[0]
    fitting.most = 1
    for name, leaf in fitting([task])[0].w.items():
        torch.testing.assert_close(leaf, whole.w[name], rtol=1e-12, atol=1e-12)
