"""All clients at once: weights carry a leading client axis (K, ...) and one step trains every client.

A client that has no batch left takes steps of size zero, which leave its weights as they are to the last bit. A short
batch is padded; padding has no weight in the loss and in batch-norm statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedskew import tree
from fedskew.data import transforms
from fedskew.engine import folded, mapped, terms, threads
from fedskew.engine.batches import Cohort, joined
from fedskew.engine.problem import Problem, Task, Trained
from fedskew.engine.terms import Logits, rows, smoothed
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
    decays: Tensor  # (K,) what weights are multiplied by and added to the gradient: weight decay and pull
    decaying: bool  # whether any of it is not zero
    shift: Tree  # (K, ...) added to the gradient; empty: none
    logits: Logits | None
    contrast: folded.Contrasted | None

    @classmethod
    def room(cls, problem: Problem, tasks: Sequence[Task]) -> Cohorts:
        """Tensors for the clients of these tasks, and of all that are alike; `load` fills them."""
        k = sum(len(task.cohort) for task in tasks)
        device = problem.x.device

        def alike(a: Tree) -> Tree:
            return tree.apply(lambda x: x.new_empty(k, *x.shape), a)

        def numbers(*shape: int, dtype: torch.dtype = problem.dtype) -> Tensor:
            return torch.empty(k, *shape, dtype=dtype, device=device)

        drift, logits, contrast = joint_shape(tasks)
        classes = next((t.terms.logits.scale.shape[1] for t in tasks if t.terms.logits), 0)
        w = tasks[0].w
        return cls(
            w=alike(w),
            stats=alike(tasks[0].stats),
            velocity=alike(w) if problem.momentum else {},
            total=numbers(dtype=torch.float64),
            rates=numbers(dtype=torch.float64),
            decays=numbers(dtype=torch.float64),
            decaying=drift or problem.weight_decay > 0,
            shift=alike(w) if drift else {},
            logits=Logits(numbers(classes), numbers(classes), numbers()) if logits else None,
            contrast=folded.Contrasted(alike(w), alike(w), numbers(), numbers()) if contrast else None,
        )

    def load(self, problem: Problem, tasks: Sequence[Task]) -> Cohorts:
        """The beginning of a round."""
        for leaf in (*self.velocity.values(), self.total):
            leaf.zero_()
        for at, task in zip(rows([len(task.cohort) for task in tasks]), tasks, strict=True):
            drift, logits, contrast = task.terms.drift, task.terms.logits, task.terms.contrast
            _put(self.w, at, task.w)
            _put(self.stats, at, task.stats)
            self.rates[at] = task.cohort.lr
            self.decays[at] = problem.weight_decay if drift is None else drift.pull + problem.weight_decay
            for name, leaf in self.shift.items():  # pull (w - w0) + shift = pull w + (shift - pull w0)
                leaf[at] = drift.shift[name] if drift and drift.shift else 0
                if drift is not None:
                    leaf[at] -= along(drift.pull.to(leaf.dtype), leaf) * task.w[name]
            if self.logits is not None:
                self.logits.scale[at] = 1 if logits is None else logits.scale
                self.logits.offset[at] = 0 if logits is None else logits.offset
                self.logits.smoothing[at] = 0 if logits is None else logits.smoothing
            if self.contrast is not None:
                _put(self.contrast.sent, at, task.w)
                _put(self.contrast.previous, at, task.w if contrast is None else contrast.previous)
                self.contrast.mu[at] = 0 if contrast is None else contrast.mu
                self.contrast.temperature[at] = 1 if contrast is None else contrast.temperature
        return self

    def part(self, some: slice) -> Cohorts:
        """Some of the clients: what is written there is written here."""
        z, c = self.logits, self.contrast
        return Cohorts(
            w=tree.part(self.w, some),
            stats=tree.part(self.stats, some),
            velocity=tree.part(self.velocity, some),
            total=self.total[some],
            rates=self.rates[some],
            decays=self.decays[some],
            decaying=self.decaying,
            shift=tree.part(self.shift, some),
            logits=z and z.part(some),
            contrast=c and c.part(some),
        )


def _put(into: Tree, at: slice, start: Tree) -> None:
    for name, leaf in into.items():
        leaf[at] = start[name]


def joint_shape(tasks: Sequence[Task]) -> tuple[bool, bool, bool]:
    """Which kinds of terms any of the tasks has; the others take part with neutral ones."""
    drift, logits, contrast = (any(parts) for parts in zip(*(task.terms.shape for task in tasks), strict=True))
    return drift, logits, contrast


def local(problem: Problem, task: Task) -> Trained:
    """McMahan et al. 2017, Algorithm 1, ClientUpdate, for the whole cohort in one computation."""
    return many(problem, [task])[0]


def many(problem: Problem, tasks: Sequence[Task], ways: Ways | None = None) -> list[Trained]:
    """Several cohorts, each from weights and with a learning rate of its own, in one computation."""
    from fedskew.engine import dense  # which stands on this module

    state = Cohorts.room(problem, tasks).load(problem, tasks)
    cohort = joined([task.cohort for task in tasks])
    layers = None if ways or state.contrast else dense.chain(problem)
    if layers is None:
        _by_steps(problem, ways or Ways(inputs, stepping(gradients_of(problem), descend)), state, cohort)
    else:

        def train(some: slice) -> None:
            draws = None if cohort.draws is None else cohort.draws[some]
            dense.train(problem, layers, state.part(some), cohort.index[some], cohort.mask[some], draws)

        threads.shared_out(train, len(cohort), min(torch.get_num_threads(), len(cohort)))
    loss = state.total / cohort.mask.sum(dim=(1, 2))
    return apart(Trained(state.w, state.stats, loss), [len(task.cohort) for task in tasks])


def _by_steps(problem: Problem, ways: Ways, state: Cohorts, cohort: Cohort) -> None:
    for s in range(cohort.index.shape[1]):
        drawn = None if cohort.draws is None else cohort.draws[:, s]
        step(problem, ways, state, cohort.index[:, s], cohort.mask[:, s], drawn, cohort.keys + s)


def apart(trained: Trained, sizes: Sequence[int]) -> list[Trained]:
    """The rows of each task."""
    return [Trained(tree.part(trained.w, p), tree.part(trained.stats, p), trained.loss[p]) for p in rows(sizes)]


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
    at = folded.Step(state.w, state.stats, dict(state.stats), mask, keys, state.logits, state.contrast)
    state.total.add_(ways.advance(problem, state, at, ways.examples(problem, index, drawn), problem.y[index], active))
    for name, old in state.stats.items():
        old.copy_(torch.where(along(active, old), at.new_stats[name], old))


def inputs(problem: Problem, index: Tensor, drawn: Tensor | None) -> Tensor:
    """The examples of a step as the network sees them, (K, B, ...)."""
    flat = None if drawn is None else drawn.flatten(0, 1)
    x = transforms.training(problem.transform, problem.x.index_select(0, index.flatten()), flat, problem.dtype)
    return x.reshape(*index.shape, *x.shape[1:])


def stepping(gradients: Gradients, descend: Callable[[Problem, Cohorts, Tree, Tensor], None]) -> Advance:
    """A step as gradients and then the descent along them."""

    def advance(problem: Problem, state: Cohorts, at: folded.Step, x: Tensor, y: Tensor, active: Tensor) -> Tensor:
        grads, losses = gradients(at, x, y)
        descend(problem, state, grads, active)
        return losses

    return advance


def gradients_of(problem: Problem) -> Gradients:
    """The faster form where every layer has one, else torch's vmap over any network."""
    network = folded.lower(problem.model)
    return mapped.gradients_of(problem.model) if network is None else through(network)


def through(network: folded.Network) -> Gradients:
    """Gradients by autograd through a network with a client axis; clients do not mix, so their losses are summed."""

    def gradients(at: folded.Step, x: Tensor, y: Tensor) -> tuple[Tree, Tensor]:
        leaves = {name: leaf.detach().requires_grad_() for name, leaf in at.w.items()}
        with torch.enable_grad():
            step = replace(at, w=leaves)
            features = network.features(step, x)
            each = _losses(widened(network.head(step, features)), y, at.logits)
            if at.contrast is not None:
                each = each + _contrasted(network, at, at.contrast, x, features)
            each = each * at.mask
            loss = (each.sum(dim=1) / at.mask.sum(dim=1).clamp_min(1)).sum()
        grads = torch.autograd.grad(loss, list(leaves.values()))
        return dict(zip(leaves, grads, strict=True)), each.detach().sum(dim=1)

    return gradients


def _losses(z: Tensor, y: Tensor, logits: Logits | None) -> Tensor:
    """Each example's cross-entropy, (K, B)."""
    if logits is None:
        return cross_entropy(z.flatten(0, 1), y.flatten(), reduction="none").view(y.shape)
    return smoothed(z, y, logits.scale.unsqueeze(1), logits.offset.unsqueeze(1), logits.smoothing.unsqueeze(1))


def _contrasted(
    network: folded.Network, at: folded.Step, against: folded.Contrasted, x: Tensor, features: Tensor
) -> Tensor:
    """MOON's term for each example, (K, B)."""
    with torch.no_grad():
        others = [
            widened(network.features(replace(at, w=w, new_stats=dict(at.stats)), x))
            for w in (against.sent, against.previous)
        ]
    return against.mu.unsqueeze(1) * terms.contrast([widened(features), *others], against.temperature)


def descend(problem: Problem, state: Cohorts, grads: Tree, active: Tensor) -> None:
    """torch.optim.SGD's step for every client, in place."""
    dtype = next(iter(state.w.values())).dtype
    rates, decays = (state.rates * active).to(dtype), state.decays.to(dtype)
    for name, leaf in state.w.items():
        g = grads[name]
        if state.decaying:
            g = torch.addcmul(g, leaf, along(decays, leaf))
        if state.shift:
            g = g + state.shift[name]
        if state.velocity:
            g = state.velocity[name].mul_(problem.momentum).add_(g)
        leaf.addcmul_(g, along(rates, g), value=-1)


def widened(logits: Tensor) -> Tensor:
    """At least single precision: a softmax in half precision loses too much."""
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits


def along(a: Tensor, like: Tensor) -> Tensor:
    """(K,) shaped to meet (K, ...)."""
    return a.reshape(-1, *[1] * (like.dim() - 1))
