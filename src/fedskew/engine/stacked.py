"""All clients at once: weights carry a leading client axis (K, ...) and one step trains every client.

A client that has no batch left takes steps of size zero, which leave its weights as they are to the last bit. A short
batch is padded; padding has no weight in the loss and in batch-norm statistics.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedskew import tree
from fedskew.data import transforms
from fedskew.engine import folded, mapped
from fedskew.engine.batches import Cohort, joined
from fedskew.engine.problem import Problem, Task, Trained
from fedskew.tree import Tree

Gradients = Callable[[folded.Step, Tensor, Tensor], tuple[Tree, Tensor]]


@dataclass(frozen=True)
class Cohorts:
    """What training overwrites, step by step; rows are clients."""

    w: Tree  # (K, ...)
    stats: Tree  # (K, ...)
    velocity: Tree  # (K, ...), empty without local momentum
    total: Tensor  # (K,) summed training loss
    rates: Tensor  # (K,) learning rates, in double precision

    @classmethod
    def of(cls, problem: Problem, w: Tree, stats: Tree, rates: Tensor) -> Cohorts:
        """Before the first step; w and stats are (K, ...) and will be overwritten."""
        velocity = tree.zeros_like(w) if problem.momentum else {}
        return cls(w, stats, velocity, torch.zeros_like(rates), rates)


def local(problem: Problem, w: Tree, stats: Tree, cohort: Cohort) -> Trained:
    """McMahan et al. 2017, Algorithm 1, ClientUpdate, for the whole cohort in one computation."""
    return many(problem, [Task(w, stats, cohort)])[0]


def many(problem: Problem, tasks: Sequence[Task], ways: Ways | None = None) -> list[Trained]:
    """Several cohorts, each from weights and with a learning rate of its own, in one computation."""
    ways = ways or ways_of(problem)
    cohort = joined([task.cohort for task in tasks])
    sizes = [len(task.cohort) for task in tasks]
    rates = torch.cat([torch.full((k,), t.cohort.lr, dtype=torch.float64) for k, t in zip(sizes, tasks, strict=True)])
    w, stats = (
        tree.apply(_together, *(repeated(a, k) for k, a in zip(sizes, trees, strict=True)))
        for trees in ([t.w for t in tasks], [t.stats for t in tasks])
    )
    state = Cohorts.of(problem, w, stats, rates.to(problem.x.device))
    for s in range(cohort.index.shape[1]):
        drawn = None if cohort.draws is None else cohort.draws[:, s]
        step(problem, ways, state, cohort.index[:, s], cohort.mask[:, s], drawn, cohort.keys + s)
    return apart(Trained(state.w, state.stats, state.total / cohort.mask.sum(dim=(1, 2))), sizes)


def _together(*leaves: Tensor) -> Tensor:
    return leaves[0] if len(leaves) == 1 else torch.cat(leaves)


def apart(trained: Trained, sizes: Sequence[int]) -> list[Trained]:
    """The rows of each task."""
    ends = list(itertools.accumulate(sizes, initial=0))
    return [
        Trained(tree.part(trained.w, p), tree.part(trained.stats, p), trained.loss[p])
        for p in map(slice, ends[:-1], ends[1:])
    ]


Advance = Callable[[Problem, Cohorts, folded.Step, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Ways:
    """The parts of a step for which a device may have its own."""

    examples: Callable[[Problem, Tensor, Tensor | None], Tensor]
    advance: Advance


def step(
    problem: Problem,
    ways: Ways,
    state: Cohorts,
    index: Tensor,  # (K, B)
    mask: Tensor,  # (K, B)
    drawn: Tensor | None,  # (K, B, 3)
    keys: Tensor,  # (K,)
) -> None:
    """One step of local SGD for every client, in place."""
    active = mask.any(dim=1)
    at = folded.Step(state.w, state.stats, dict(state.stats), mask, keys)
    state.total.add_(ways.advance(problem, state, at, ways.examples(problem, index, drawn), problem.y[index], active))
    for name, old in state.stats.items():
        old.copy_(torch.where(along(active, old), at.new_stats[name], old))


def inputs(problem: Problem, index: Tensor, drawn: Tensor | None) -> Tensor:
    """The examples of a step as the network sees them, (K, B, ...)."""
    flat = None if drawn is None else drawn.flatten(0, 1)
    x = transforms.training(problem.transform, problem.x.index_select(0, index.flatten()), flat, problem.dtype)
    return x.reshape(*index.shape, *x.shape[1:])


def ways_of(problem: Problem) -> Ways:
    """By hand for a chain of linear layers, else through a library's gradients."""
    from fedskew.engine import dense  # which stands on this module

    layers = dense.chain(problem)
    return Ways(inputs, stepping(gradients_of(problem), descend) if layers is None else partial(dense.advance, layers))


def stepping(gradients: Gradients, descend: Callable[[Problem, Cohorts, Tree, Tensor], None]) -> Advance:
    """A step as gradients and then the descent along them."""

    def advance(problem: Problem, state: Cohorts, at: folded.Step, x: Tensor, y: Tensor, active: Tensor) -> Tensor:
        grads, losses = gradients(at, x, y)
        descend(problem, state, grads, active)
        return losses

    return advance


def gradients_of(problem: Problem) -> Gradients:
    """The faster form where every layer has one, else torch's vmap over any network."""
    forward = folded.lower(problem.model)
    return mapped.gradients_of(problem.model) if forward is None else through(forward)


def through(forward: folded.Layer) -> Gradients:
    """Gradients by autograd through a network with a client axis; clients do not mix, so their losses are summed."""

    def gradients(at: folded.Step, x: Tensor, y: Tensor) -> tuple[Tree, Tensor]:
        leaves = {name: leaf.detach().requires_grad_() for name, leaf in at.w.items()}
        with torch.enable_grad():
            logits = forward(folded.Step(leaves, at.stats, at.new_stats, at.mask, at.keys), x)
            each = cross_entropy(widened(logits).flatten(0, 1), y.flatten(), reduction="none").view(y.shape) * at.mask
            loss = (each.sum(dim=1) / at.mask.sum(dim=1).clamp_min(1)).sum()
        grads = torch.autograd.grad(loss, list(leaves.values()))
        return dict(zip(leaves, grads, strict=True)), each.detach().sum(dim=1)

    return gradients


def descend(problem: Problem, state: Cohorts, grads: Tree, active: Tensor) -> None:
    """torch.optim.SGD's step for every client, in place."""
    rates = (state.rates * active).to(next(iter(state.w.values())).dtype)
    for name, leaf in state.w.items():
        g = grads[name]
        if problem.weight_decay:
            g = g.add(leaf, alpha=problem.weight_decay)
        if state.velocity:
            g = state.velocity[name].mul_(problem.momentum).add_(g)
        leaf.addcmul_(g, along(rates, g), value=-1)


def widened(logits: Tensor) -> Tensor:
    """At least single precision: a softmax in half precision loses too much."""
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits


def repeated(a: Tree, k: int) -> Tree:
    """K copies of a tree, stacked."""
    return tree.apply(lambda x: x.expand(k, *x.shape).clone(), a)


def along(a: Tensor, like: Tensor) -> Tensor:
    """(K,) shaped to meet (K, ...)."""
    return a.reshape(-1, *[1] * (like.dim() - 1))
