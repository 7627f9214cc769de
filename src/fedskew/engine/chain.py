"""A chain of layers in a form that gives the same weights for less work: what one client's thread runs on a CPU."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedskew.engine.seeded import SeededDropout
from fedskew.models import Residual
from fedskew.tree import Tree

# Below this a gradient fits the nearest caches, and a step in Python costs more than writing and reading it.
LARGE = 1 << 16  # weights

# Their backward does not read their output, so a ReLU may overwrite it.
_LETS_GO = (nn.Conv2d, nn.Linear, nn.BatchNorm2d, nn.GroupNorm, nn.MaxPool2d)
_KNOWN = (
    *_LETS_GO,
    *(nn.Sequential, nn.ReLU, nn.Tanh, nn.Flatten, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.Identity),
    *(SeededDropout, Residual),
)


@dataclass
class Descent:
    """torch.optim.SGD's step for weights whose gradient is a product, which is never written out."""

    w: Tensor
    lr: float
    weight_decay: float
    momentum: float
    velocity: Tensor | None
    shift: Tensor | None  # added to every gradient

    def step(self, left: Tensor, right: Tensor) -> None:
        """One step along left @ right."""
        if self.velocity is None:
            self.w.addmm_(left, right, beta=1 - self.lr * self.weight_decay, alpha=-self.lr)
            if self.shift is not None:
                self.w.add_(self.shift, alpha=-self.lr)
            return
        self.velocity.addmm_(left, right, beta=self.momentum)
        if self.weight_decay:
            self.velocity.add_(self.w, alpha=self.weight_decay)
        if self.shift is not None:
            self.velocity.add_(self.shift)
        self.w.add_(self.velocity, alpha=-self.lr)


class _Linear(torch.autograd.Function):
    """A linear layer whose backward pass also takes the step for its weights, in single precision at least."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)  # type: ignore[untyped-decorator]
    def forward(ctx: Any, x: Tensor, bias: Tensor, descent: Descent) -> Tensor:
        ctx.save_for_backward(x)
        ctx.descent = descent
        return F.linear(x, descent.w, bias)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")  # type: ignore[untyped-decorator]
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor, None]:
        (x,) = ctx.saved_tensors
        dx = dy @ ctx.descent.w if ctx.needs_input_grad[0] else None
        dy = dy.flatten(0, -2)
        ctx.descent.step(dy.t(), x.flatten(0, -2))
        return dx, dy.sum(dim=0), None


class Chain:
    """A network as a function; `descents` are the weights that step within the backward pass, by name."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.descents = model, dict[str, Descent]()
        layers = _flat(model, "")
        alone = len({id(layer) for _, layer in layers}) == len(layers)  # no layer twice in the chain
        uses = Counter(id(p) for m in model.modules() for p in m._parameters.values())
        self.calls: list[Callable[[Tensor], Tensor]] = []
        previous: nn.Module | None = None
        for name, layer in _pooled_first(layers):
            if type(layer) is nn.ReLU and type(previous) in _LETS_GO:
                self.calls.append(torch.relu_)
            elif alone and type(layer) is nn.Linear and uses[id(layer.weight)] == 1 and _worth(layer):
                self.calls.append(self._stepping(f"{name}.weight", layer))
            else:
                self.calls.append(layer)
            previous = layer

    def __call__(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.features(x))

    def features(self, x: Tensor) -> Tensor:
        """What the last layer is given."""
        for call in self.calls[:-1]:
            x = call(x)
        return x

    def head(self, x: Tensor) -> Tensor:
        """The last layer; of a network that is no chain, all of it."""
        return self.calls[-1](x)

    def _stepping(self, name: str, layer: nn.Linear) -> Callable[[Tensor], Tensor]:
        descent = self.descents[name] = Descent(layer.weight.detach(), 0.0, 0.0, 0.0, None, None)
        return lambda x: _Linear.apply(x, layer.bias, descent)  # type: ignore[no-untyped-call]


def known(model: nn.Module) -> bool:
    """Every layer is one of ours: they take channels-last images and draw nothing at random."""
    return all(type(m) in _KNOWN for m in model.modules())


def copied(model: nn.Module, last: bool) -> nn.Module:
    """A copy for a thread or an exam of its own; `last`: its weights are channels-last."""
    model = copy.deepcopy(model)
    if last:
        for p in model.parameters():
            p.data = channels_last(p.data)
    return model


@torch.no_grad()
def filled(model: nn.Module, w: Tree, stats: Tree) -> nn.Module:
    """The network itself, with these weights and statistics."""
    for name, p in model.named_parameters():
        p.copy_(w[name])
    for name, b in model.named_buffers():
        b.copy_(stats[name])
    return model


def channels_last(x: Tensor) -> Tensor:
    """A copy with the strides of channels-last, one channel included, for which torch's own conversion does nothing."""
    if x.dim() != 4:
        return x
    return torch.empty_like(x, memory_format=torch.channels_last).copy_(x)


def _flat(module: nn.Module, name: str) -> list[tuple[str, nn.Module]]:
    """The layers of nested chains in order, with their names; a network of any other kind is one layer."""
    if type(module) is not nn.Sequential:
        return [(name, module)]
    return [
        found
        for key, child in module._modules.items()
        if child is not None
        for found in _flat(child, f"{name}.{key}" if name else key)
    ]


def _pooled_first(layers: list[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    """max(relu(x)) is relu(max(x)), gradients included: what is pooled away needs no ReLU."""
    layers = list(layers)
    for i in range(len(layers) - 1):
        (_, first), (_, second) = layers[i], layers[i + 1]
        if type(first) is nn.ReLU and type(second) is nn.MaxPool2d and not second.return_indices:
            layers[i], layers[i + 1] = layers[i + 1], layers[i]
    return layers


def _worth(layer: nn.Linear) -> bool:
    both = layer.weight.requires_grad and layer.bias is not None and layer.bias.requires_grad
    return both and layer.weight.numel() >= LARGE
