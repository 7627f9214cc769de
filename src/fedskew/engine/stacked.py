"""All clients at once: weights carry a leading client axis (K, ...) and one step trains every client.

A client that has no batch left takes steps of size zero, which leave its weights as they are to the last bit. A short
batch is padded; padding has no weight in the loss and in batch-norm statistics.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedskew import tree
from fedskew.data import transforms
from fedskew.engine import folded, mapped
from fedskew.engine.batches import Cohort
from fedskew.engine.problem import Problem, Trained
from fedskew.tree import Tree

Gradients = Callable[[folded.Step, Tensor, Tensor], tuple[Tree, Tensor]]


def local(problem: Problem, w: Tree, stats: Tree, cohort: Cohort) -> Trained:
    """McMahan et al. 2017, Algorithm 1, ClientUpdate, for the whole cohort in one computation."""
    k = len(cohort)
    rates = torch.full((k,), cohort.lr, device=problem.x.device, dtype=problem.dtype)
    return steps(problem, _repeated(w, k), _repeated(stats, k), cohort, rates)


def steps(problem: Problem, w: Tree, stats: Tree, cohort: Cohort, rates: Tensor) -> Trained:
    """Train from weights (K, ...) with learning rates (K,); the trees given are overwritten."""
    gradients = gradients_of(problem)
    velocity = tree.zeros_like(w) if problem.momentum else None
    total = torch.zeros(len(rates), device=rates.device, dtype=torch.float64)
    for s in range(cohort.index.shape[1]):
        mask, index = cohort.mask[:, s], cohort.index[:, s]  # (K, B)
        active = mask.any(dim=1)
        x = batch(problem, cohort, s)
        step = folded.Step(w, stats, dict(stats), mask, cohort.keys + s)
        grads, losses = gradients(step, x, problem.y[index])
        total += losses
        _descend(problem, w, grads, velocity, rates * active)
        stats = tree.apply(lambda new, old, a=active: torch.where(_along(a, new), new, old), step.new_stats, stats)
    return Trained(w, stats, total / cohort.mask.sum(dim=(1, 2)))


def batch(problem: Problem, cohort: Cohort, s: int) -> Tensor:
    """The examples of step s as the network sees them, (K, B, ...)."""
    index = cohort.index[:, s]
    drawn = None if cohort.draws is None else cohort.draws[:, s].flatten(0, 1)
    x = transforms.training(problem.transform, problem.x[index.flatten()], drawn, problem.dtype)
    return x.reshape(*index.shape, *x.shape[1:])


def gradients_of(problem: Problem) -> Gradients:
    """The faster form where every layer has one, else torch's vmap over any network."""
    forward = folded.lower(problem.model)
    if forward is None:
        return mapped.gradients_of(problem.model)

    def gradients(step: folded.Step, x: Tensor, y: Tensor) -> tuple[Tree, Tensor]:
        leaves = {name: leaf.detach().requires_grad_() for name, leaf in step.w.items()}
        with torch.enable_grad():
            logits = forward(folded.Step(leaves, step.stats, step.new_stats, step.mask, step.keys), x)
            each = cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").view(y.shape) * step.mask
            loss = (each.sum(dim=1) / step.mask.sum(dim=1).clamp_min(1)).sum()  # clients do not mix
        grads = torch.autograd.grad(loss, list(leaves.values()))
        return dict(zip(leaves, grads, strict=True)), each.detach().sum(dim=1)

    return gradients


def _descend(problem: Problem, w: Tree, grads: Tree, velocity: Tree | None, rates: Tensor) -> None:
    """torch.optim.SGD's step for every client, in place."""
    for name, leaf in w.items():
        g = grads[name]
        if problem.weight_decay:
            g = g.add(leaf, alpha=problem.weight_decay)
        if velocity is not None:
            g = velocity[name].mul_(problem.momentum).add_(g)
        leaf.addcmul_(g, _along(rates, g), value=-1)


def _repeated(a: Tree, k: int) -> Tree:
    return tree.apply(lambda x: x.expand(k, *x.shape).clone(), a)


def _along(a: Tensor, like: Tensor) -> Tensor:
    """(K,) shaped to meet (K, ...)."""
    return a.reshape(-1, *[1] * (like.dim() - 1))
