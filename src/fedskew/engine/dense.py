"""Chains of linear layers and ReLU, differentiated by hand: on a CPU a small network's time is all calls.

The learning rate is multiplied into the gradient of the logits, and backpropagation is linear, so each layer's step is
one batched product added to its weights; no gradient is written out. Bytes are not divided by 255: the first layer's
two products are, which saves a pass over the examples (a quarter of what softmax regression moves through memory).
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from fedskew.engine.folded import Step, reuses
from fedskew.engine.problem import Problem
from fedskew.engine.stacked import Cohorts, Ways, along, inputs
from fedskew.engine.terms import Logits


def chain(problem: Problem) -> list[str | None] | None:
    """The layers after flattening: a linear layer's name or None for a ReLU; None if the network is something else."""
    if type(problem.model) is not nn.Sequential or problem.momentum or reuses(problem.model):
        return None
    named = list(problem.model._modules.items())
    if named and type(named[0][1]) is nn.Flatten:
        named = named[1:]
    layers: list[str | None] = []
    for name, module in named:
        if type(module) is nn.ReLU and layers and layers[-1] is not None:
            layers.append(None)
        elif type(module) is nn.Linear and module.bias is not None:
            layers.append(name)
        else:
            return None
    return layers if layers and layers[-1] is not None else None


def ways(problem: Problem, layers: list[str | None]) -> Ways:
    """The parts of a step for such a chain."""
    bytes_ = problem.transform == "scale" and problem.x.dtype == torch.uint8
    return Ways(_bytes if bytes_ else inputs, partial(_advance, layers, 1 / 255 if bytes_ else 1.0), apart=True)


def _bytes(problem: Problem, index: Tensor, drawn: Tensor | None) -> Tensor:
    """The examples of a step as they are stored, 0 to 255."""
    x = problem.x.index_select(0, index.flatten()).to(problem.dtype)
    return x.reshape(*index.shape, *x.shape[1:])


def _advance(
    layers: list[str | None],
    unit: float,  # what the examples' numbers are multiplied by
    problem: Problem,
    state: Cohorts,
    at: Step,
    x: Tensor,
    y: Tensor,
    active: Tensor,
) -> Tensor:
    """One step for every client, in place; each client's summed loss (K,)."""
    before = [x.flatten(2)]  # what each layer was given, (K, B, F)
    for i, name in enumerate(layers):
        a = before[-1]
        before.append(a.relu() if name is None else _linear(state, name, a, 1.0 if i else unit))
    rates = (state.rates * active).to(x.dtype)
    share = at.mask * (rates / at.mask.sum(dim=1).clamp_min(1)).unsqueeze(1)  # (K, B) the weight of an example's step
    each, d = _loss(before.pop(), y.unsqueeze(2), at.logits)
    d.mul_(share.unsqueeze(2))
    for i in reversed(range(len(layers))):
        name, a = layers[i], before[i]
        if name is None:
            d = d * (before[i + 1] > 0)
            continue
        w, bias = state.w[f"{name}.weight"], state.w[f"{name}.bias"]
        below = torch.bmm(d, w) if i else None
        if state.decaying:
            for leaf in (w, bias):
                leaf.mul_(along(1 - rates * state.decays.to(x.dtype), leaf))
        if state.shift:
            for leaf, shift in ((w, state.shift[f"{name}.weight"]), (bias, state.shift[f"{name}.bias"])):
                leaf.addcmul_(shift, along(rates, leaf), value=-1)
        w.baddbmm_(d.transpose(1, 2), a, alpha=-1.0 if i else -unit)
        bias.sub_(d.sum(dim=1))
        if below is not None:
            d = below
    return (each * at.mask).sum(dim=1)


def _loss(z: Tensor, label: Tensor, logits: Logits | None) -> tuple[Tensor, Tensor]:
    """Each example's cross-entropy (K, B) and its gradient by the logits (K, B, C)."""
    if logits is not None:
        z = torch.addcmul(logits.offset.unsqueeze(1), z, logits.scale.unsqueeze(1))
    z = z - z.amax(dim=2, keepdim=True)  # torch's log_softmax over ten classes takes five times as long
    p = z.exp()
    norm = p.sum(dim=2, keepdim=True)
    each = norm.log() - z.gather(2, label)
    ones = torch.ones_like(label, dtype=z.dtype)
    if logits is None:
        return each.squeeze(2), p.div_(norm).scatter_add_(2, label, -ones)
    smoothing = logits.smoothing[:, None, None]
    each = (1 - smoothing) * each + smoothing * (norm.log() - z.mean(dim=2, keepdim=True))
    d = p.div_(norm).sub_(smoothing / z.shape[2]).scatter_add_(2, label, (smoothing - 1) * ones)
    return each.squeeze(2), d.mul_(logits.scale.unsqueeze(1))


def _linear(state: Cohorts, name: str, x: Tensor, unit: float) -> Tensor:
    w, bias = state.w[f"{name}.weight"], state.w[f"{name}.bias"]
    z = torch.bmm(x, w.transpose(1, 2))  # with the bias in the product, baddbmm, it takes twice as long
    return (z if unit == 1.0 else z.mul_(unit)).add_(bias.unsqueeze(1))
