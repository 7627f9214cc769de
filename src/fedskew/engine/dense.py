"""Chains of linear layers and ReLU, differentiated by hand: on a CPU a small network's time is all calls.

The learning rate is multiplied into the gradient of the logits, and backpropagation is linear, so each layer's step is
one batched product added to its weights; no gradient is written out. Bytes are not divided by 255: the first layer's
two products are, which saves a pass over the examples (a quarter of what softmax regression moves through memory).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedskew.engine.folded import reuses
from fedskew.engine.problem import Problem
from fedskew.engine.stacked import Cohorts, along, inputs
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


def train(
    problem: Problem, layers: list[str | None], state: Cohorts, index: Tensor, mask: Tensor, draws: Tensor | None
) -> None:
    """All steps of a round, for clients with batches (K, S, B), in place."""
    index, mask = (a.transpose(0, 1).contiguous() for a in (index, mask))  # (S, K, B): a step's lie together
    examples, unit = _examples(problem, index[0])
    labels = problem.y[index].unsqueeze(3)
    rates = (state.rates * mask.any(dim=2)).to(problem.dtype)  # (S, K)
    share = mask * (rates / mask.sum(dim=2).clamp_min(1)).unsqueeze(2)  # the weight of an example's step
    losses = []
    for s, rows in enumerate(index):
        x = examples(rows, None if draws is None else draws[:, s])
        losses.append(_step(layers, unit, state, x, labels[s], share[s].unsqueeze(2), rates[s]))
    state.total.add_((torch.stack(losses) * mask).sum(dim=(0, 2), dtype=torch.float64))


def _examples(problem: Problem, index: Tensor) -> tuple[Callable[[Tensor, Tensor | None], Tensor], float]:
    """What gives the examples (K, B, F) of a step, and what their numbers are to be multiplied by.

    Bytes stay 0 to 255, in one place for all steps: memory that is new costs more than the numbers in it.
    """
    if problem.transform != "scale" or problem.x.dtype != torch.uint8:
        return lambda rows, drawn: inputs(problem, rows, drawn).flatten(2), 1.0
    stored = problem.x.flatten(1)
    found = torch.empty(index.numel(), stored.shape[1], dtype=torch.uint8)
    room = torch.empty_like(found, dtype=problem.dtype)

    def bytes_(rows: Tensor, drawn: Tensor | None) -> Tensor:
        return room.copy_(torch.index_select(stored, 0, rows.flatten(), out=found)).view(*rows.shape, -1)

    return bytes_, 1 / 255


def _step(
    layers: list[str | None], unit: float, state: Cohorts, x: Tensor, label: Tensor, share: Tensor, rates: Tensor
) -> Tensor:
    """One step for every client, in place; each example's loss (K, B)."""
    before = [x]  # what each layer was given, (K, B, F)
    for i, name in enumerate(layers):
        a = before[-1]
        before.append(a.relu() if name is None else _linear(state, name, a, 1.0 if i else unit))
    each, d = _loss(before.pop(), label, share, state.logits)
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
    return each


def _loss(z: Tensor, label: Tensor, share: Tensor, logits: Logits | None) -> tuple[Tensor, Tensor]:
    """Each example's cross-entropy (K, B); and its gradient by the logits (K, B, C), times its share of the step."""
    if logits is not None:
        z = torch.addcmul(logits.offset.unsqueeze(1), z, logits.scale.unsqueeze(1))
    z = z - z.amax(dim=2, keepdim=True)  # torch's log_softmax over ten classes takes five times as long
    p = z.exp()
    norm = p.sum(dim=2, keepdim=True)
    each = norm.log() - z.gather(2, label)
    if logits is None:
        return each.squeeze(2), p.mul_(share / norm).scatter_add_(2, label, -share)
    smoothing = logits.smoothing[:, None, None]
    each = (1 - smoothing) * each + smoothing * (norm.log() - z.mean(dim=2, keepdim=True))
    d = p.mul_(share / norm).sub_(share * smoothing / z.shape[2]).scatter_add_(2, label, share * (smoothing - 1))
    return each.squeeze(2), d.mul_(logits.scale.unsqueeze(1))


def _linear(state: Cohorts, name: str, x: Tensor, unit: float) -> Tensor:
    w, bias = state.w[f"{name}.weight"], state.w[f"{name}.bias"]
    z = torch.bmm(x, w.transpose(1, 2))  # with the bias in the product, baddbmm, it takes twice as long
    return torch.add(bias.unsqueeze(1), z, alpha=unit)
