"""Networks with a client axis: one call trains K clients. Images are folded as (B, K C, H, W), vectors are (K, B, F).

Folding clients into channels turns K convolutions into one (see convolutions.py) and leaves ReLU, pooling and group
norm as they are; K linear layers become one batched product.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedskew import tree
from fedskew.engine.convolutions import convolve
from fedskew.engine.seeded import SeededDropout
from fedskew.engine.terms import Logits
from fedskew.models import Residual
from fedskew.tree import Tree


@dataclass(frozen=True)
class Step:
    """What the layers of one step share."""

    w: Tree  # (K, ...)
    stats: Tree  # (K, ...) before the step
    new_stats: Tree  # (K, ...) as before the step, until the layers fill in what comes after it
    mask: Tensor  # (K, B) 1 for an example, 0 for padding
    keys: Tensor  # (K,) for dropout
    logits: Logits | None = None
    contrast: Contrasted | None = None
    testing: bool = False  # batch norm by its running statistics, no dropout


@dataclass(frozen=True)
class Contrasted:
    """What a client's features are compared with: see terms.Contrast."""

    sent: Tree  # (K, ...) weights that the round began with
    previous: Tree  # (K, ...) each client's own last weights
    mu: Tensor  # (K,)
    temperature: Tensor  # (K,)

    def part(self, some: slice) -> Contrasted:
        """Those of some clients."""
        sent, previous = (tree.part(a, some) for a in (self.sent, self.previous))
        return Contrasted(sent, previous, self.mu[some], self.temperature[some])


Layer = Callable[[Step, Tensor], Tensor]


@dataclass(frozen=True)
class Network:
    """(K, B, ...) -> logits (K, B, C), in two parts: what comes before the last layer, and that layer."""

    body: list[Layer]
    head: Layer
    enter: Callable[[Tensor], Tensor]  # lays the examples out as the first layer wants them
    share: Callable[[Tensor, int], Tensor]  # the same for examples (B, ...) that all K clients see

    def features(self, step: Step, x: Tensor) -> Tensor:
        """What the last layer is given."""
        return self._through(step, self.enter(x))

    def shared(self, step: Step, x: Tensor) -> Tensor:
        """Logits (K, B, C) of every client for the same examples (B, ...)."""
        return self.head(step, self._through(step, self.share(x, len(step.mask))))

    def _through(self, step: Step, x: Tensor) -> Tensor:
        for layer in self.body:
            x = layer(step, x)
        return x


def lower(model: nn.Module) -> Network | None:
    """The network with a client axis; None if it has a layer that is not known here."""
    # a layer in two places has its first name, as in named_parameters
    names = {module: f"{path}." if path else "" for path, module in model.named_modules()}
    layers = None if _tied(model) else _lower(model, names)
    if not layers:
        return None
    first = next(m for m in model.modules() if type(m) is not nn.Sequential)

    def enter(x: Tensor) -> Tensor:
        if x.dim() == 5 and not isinstance(first, nn.Flatten):
            return x.transpose(0, 1).flatten(1, 2)  # (B, K C, H, W)
        return x

    def share(x: Tensor, clients: int) -> Tensor:
        if isinstance(first, nn.Conv2d):
            return x  # one image makes the K O channels of all clients
        return enter(x.expand(clients, *x.shape))

    return Network(layers[:-1], layers[-1], enter, share)


def reuses(chain: nn.Sequential) -> bool:
    """Whether two places of a chain have weights in common."""
    return max(Counter(id(p) for layer in chain for p in layer.parameters()).values(), default=0) > 1


def _tied(model: nn.Module) -> bool:
    """Whether two layers have weights or statistics in common."""
    held = (t for m in model.modules() for t in (*m._parameters.values(), *m._buffers.values()) if t is not None)
    return max(Counter(map(id, held)).values(), default=0) > 1


def _lower(module: nn.Module, names: dict[nn.Module, str]) -> list[Layer] | None:
    if type(module) is nn.Sequential:
        parts = [_lower(child, names) for child in module]  # named_children would leave out the second place of a layer
        return None if any(part is None for part in parts) else [layer for part in parts for layer in part or []]
    maker = _MAKERS.get(type(module))
    layer = maker(module, names[module]) if maker else None
    return None if layer is None else [layer]


def _linear(module: Any, name: str) -> Layer:
    def layer(step: Step, x: Tensor) -> Tensor:
        w = step.w[f"{name}weight"].to(x.dtype)
        bias = None if module.bias is None else step.w[f"{name}bias"].to(x.dtype)
        if step.testing and not x.is_cuda:
            # A wider product can add in another order, and a run's scores shall not depend on who is scored beside it.
            biases = [None] * len(w) if bias is None else bias
            return torch.stack([F.linear(*one) for one in zip(x, w, biases, strict=True)])
        if len(w) > 1 and x.stride(0) == 0:  # the same examples for every client: one product, K O wide
            y = F.linear(x[0], w.flatten(0, 1), None if bias is None else bias.flatten())
            return y.view(len(y), len(w), -1).transpose(0, 1)
        w = w.transpose(1, 2)
        return torch.bmm(x, w) if bias is None else torch.baddbmm(bias.unsqueeze(1), x, w)

    return layer


def _conv(module: Any, name: str) -> Layer | None:
    if module.groups != 1 or module.padding_mode != "zeros" or isinstance(module.padding, str):
        return None

    def layer(step: Step, x: Tensor) -> Tensor:
        w = step.w[f"{name}weight"].to(x.dtype)
        bias = None if module.bias is None else step.w[f"{name}bias"].to(x.dtype)
        return convolve(x, w, bias, module.stride, module.padding, module.dilation)

    return layer


def tracks(norm: Any) -> bool:
    """Whether it is the usual batch norm, with weights and running statistics."""
    return norm.momentum is not None and norm.affine and norm.track_running_stats


@torch.no_grad()
def track(step: Step, norm: Any, name: str, mean: Tensor, unbiased: Tensor) -> None:
    """Move running statistics (K, C) towards those of the step's batch."""
    m, stats = norm.momentum, step.new_stats
    stats[f"{name}running_mean"] = (1 - m) * stats[f"{name}running_mean"] + m * mean
    stats[f"{name}running_var"] = (1 - m) * stats[f"{name}running_var"] + m * unbiased
    stats[f"{name}num_batches_tracked"] = stats[f"{name}num_batches_tracked"] + 1


def _batch_norm(module: Any, name: str) -> Layer | None:
    if not tracks(module):
        return None

    def layer(step: Step, x: Tensor) -> Tensor:
        if step.testing:
            mean, var = (step.stats[f"{name}running_{key}"].flatten() for key in ("mean", "var"))
            w, bias = (step.w[f"{name}{key}"].flatten() for key in ("weight", "bias"))
            return F.batch_norm(x, mean, var, w, bias, eps=module.eps)
        k = len(step.mask)
        x = _apart(x, k)
        real = step.mask.T[:, :, None, None, None].to(x.dtype)
        n = (step.mask.sum(dim=1) * x[0, 0, 0].numel()).to(x.dtype)[:, None]  # (K, 1)
        alive = n.clamp_min(1)
        mean = (x * real).sum(dim=(0, 3, 4)) / alive  # (K, C)
        centred = x - mean[:, :, None, None]
        square = (centred.square() * real).sum(dim=(0, 3, 4))
        track(step, module, name, mean, square / (n - 1).clamp_min(1))
        scale = step.w[f"{name}weight"] / (square / alive + module.eps).sqrt()
        return torch.addcmul(step.w[f"{name}bias"][:, :, None, None], centred, scale[:, :, None, None]).flatten(1, 2)

    return layer


def _group_norm(module: Any, name: str) -> Layer:
    def layer(step: Step, x: Tensor) -> Tensor:
        w, b = step.w[f"{name}weight"], step.w[f"{name}bias"]
        return F.group_norm(x, len(w) * module.num_groups, w.flatten(), b.flatten(), module.eps)

    return layer


def _flatten(module: Any, name: str) -> Layer | None:
    if (module.start_dim, module.end_dim) != (1, -1):
        return None

    def layer(step: Step, x: Tensor) -> Tensor:
        k = len(step.mask)
        if x.dim() == 4:
            return _apart(x, k).transpose(0, 1).flatten(2)
        return x.flatten(2)

    return layer


def dropout(module: SeededDropout, name: str = "") -> Layer:
    """Images or vectors."""
    mask_of = module.mask

    def layer(step: Step, x: Tensor) -> Tensor:
        if step.testing:
            return x
        if x.dim() == 3:
            return x * mask_of(step.keys, tuple(x.shape[1:]), x.dtype)
        k = len(step.mask)
        per_client = _apart(x, k)
        mask = mask_of(step.keys, (x.shape[0], *per_client.shape[2:]), x.dtype)  # (K, B, C, H, W)
        return (per_client * mask.transpose(0, 1)).flatten(1, 2)

    return layer


def _residual(module: Any, name: str) -> Layer:
    conv1, conv2 = _conv(module.conv1, f"{name}conv1."), _conv(module.conv2, f"{name}conv2.")
    norm1, norm2 = _group_norm(module.norm1, f"{name}norm1."), _group_norm(module.norm2, f"{name}norm2.")
    assert conv1 is not None
    assert conv2 is not None

    def layer(step: Step, x: Tensor) -> Tensor:
        y = norm2(step, conv2(step, torch.relu(norm1(step, conv1(step, x)))))
        x = _apart(x[:, :, :: module.stride, :: module.stride], len(step.mask))
        return torch.relu(F.pad(x, (0, 0, 0, 0, 0, module.new_channels)).flatten(1, 2) + y)

    return layer


def _unchanged(module: Any, name: str) -> Layer:
    """A layer that treats every channel, or every number, alike."""

    def layer(step: Step, x: Tensor) -> Tensor:
        y: Tensor = module(x)
        return y

    return layer


def _apart(x: Tensor, clients: int) -> Tensor:
    """(B, K C, H, W) as (B, K, C, H, W)."""
    return x.reshape(x.shape[0], clients, -1, *x.shape[2:])


_MAKERS: dict[type[nn.Module], Callable[[Any, str], Layer | None]] = {
    nn.Linear: _linear,
    nn.Conv2d: _conv,
    nn.BatchNorm2d: _batch_norm,
    nn.GroupNorm: _group_norm,
    nn.Flatten: _flatten,
    SeededDropout: dropout,
    Residual: _residual,
    nn.ReLU: _unchanged,
    nn.Tanh: _unchanged,
    nn.MaxPool2d: _unchanged,
    nn.AvgPool2d: _unchanged,
    nn.AdaptiveAvgPool2d: _unchanged,
    nn.Identity: _unchanged,
}
