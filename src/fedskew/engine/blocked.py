"""Networks with a client axis on our own GPU kernels; images are (K, B, H, W, C)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from fedskew.engine import folded, kernels, norms, pooling, stages
from fedskew.engine.folded import Layer, Network, Step, reuses
from fedskew.engine.seeded import SeededDropout

Named = list[tuple[str, Any]]


def lower(model: nn.Module) -> Network | None:
    """(K, B, H, W, C) -> logits (K, B, classes) for stages that begin with a convolution, then a vector part."""
    if type(model) is not nn.Sequential or reuses(model):
        return None
    named = list(model._modules.items())
    body: list[Layer] = []
    while named and (stage := _stage(named)):
        layers, length = stage
        body += layers
        named = named[length:]
    if not body or not named or type(named[0][1]) is not nn.Flatten:
        return None
    rest = [_vector(name, module) for name, module in named[1:]]
    known = [layer for layer in rest if layer is not None]
    if not known or len(known) < len(rest):
        return None
    return Network([*body, _flattened, *known[:-1]], known[-1], enter=lambda x: x, share=_shared)


def _shared(x: Tensor, clients: int) -> Tensor:
    """(B, C, H, W) -> (K, B, H, W, C); the kernels read each client's own copy."""
    return x.movedim(1, -1).expand(clients, -1, -1, -1, -1).contiguous()


def _flattened(step: Step, x: Tensor) -> Tensor:
    return x.movedim(-1, 2).flatten(2)  # a Flatten sees (C, H, W)


def _vector(name: str, module: Any) -> Layer | None:
    if type(module) is nn.ReLU:
        return lambda step, x: x.relu()
    if type(module) is SeededDropout:
        return folded.dropout(module)
    if type(module) is not nn.Linear or module.bias is None:
        return None

    def layer(step: Step, x: Tensor) -> Tensor:
        y: Tensor = kernels.Linear.apply(x, step.w[f"{name}.weight"], step.w[f"{name}.bias"])  # type: ignore[no-untyped-call]
        return y

    return layer


def _stage(named: Named) -> tuple[list[Layer], int] | None:
    """A convolution and what comes after it, and how many modules that is.

    ReLU; ReLU and max-pool in either order, for max(relu(x)) is relu(max(x)); batch norm and ReLU; and then max-pool.
    """
    (name, conv), following = named[0], named[1:4]
    if not _plain(conv):
        return None
    kinds = tuple(type(module) for _, module in following)
    if kinds[:2] == (nn.BatchNorm2d, nn.ReLU):
        norm = _norm(*following[0])
        alone = stages.Window(conv.padding, conv.stride, relu=False)
        if norm is None:
            return None
        if kinds[2:] != (nn.MaxPool2d,):
            return [_conv(name, alone), norm], 3
        pool = _pool(following[2][1])
        return ([_conv(name, alone), norm, _pooled(pool)], 4) if pool else None
    if kinds[:2] in ((nn.ReLU, nn.MaxPool2d), (nn.MaxPool2d, nn.ReLU)):
        pool = _pool(following[kinds.index(nn.MaxPool2d)][1])
        return ([_conv(name, stages.Window(conv.padding, conv.stride, pool=pool))], 3) if pool else None
    if kinds[:1] == (nn.ReLU,):
        return [_conv(name, stages.Window(conv.padding, conv.stride))], 2
    return None


def _conv(name: str, window: stages.Window) -> Layer:
    def layer(step: Step, x: Tensor) -> Tensor:
        y: Tensor = stages.Stage.apply(x, step.w[f"{name}.weight"], step.w[f"{name}.bias"], window)  # type: ignore[no-untyped-call]
        return y

    return layer


def _norm(name: str, module: Any) -> Layer | None:
    if not folded.tracks(module):
        return None

    def layer(step: Step, x: Tensor) -> Tensor:
        w, bias = step.w[f"{name}.weight"], step.w[f"{name}.bias"]
        if step.testing:
            mean, variance = (step.stats[f"{name}.running_{key}"] for key in ("mean", "var"))
            return norms.normalised(x, mean, w * (variance + module.eps).rsqrt(), bias)
        y: Tensor
        y, mean, variance = norms.NormRelu.apply(x, w, bias, step.mask, module.eps)  # type: ignore[no-untyped-call]
        folded.track(step, module, f"{name}.", mean, variance)
        return y

    return layer


def _pooled(pool: pooling.Pool) -> Layer:
    def layer(step: Step, x: Tensor) -> Tensor:
        y: Tensor = stages.Pool.apply(x, pool)  # type: ignore[no-untyped-call]
        return y

    return layer


def _pool(module: Any) -> pooling.Pool | None:
    """Size, stride and padding; None if it is another kind of pool."""
    pool = (module.kernel_size, module.stride, module.padding)
    simple = all(isinstance(value, int) for value in pool) and module.dilation == 1 and not module.ceil_mode
    return pool if simple else None


def _plain(conv: Any) -> bool:
    if type(conv) is not nn.Conv2d:
        return False
    if conv.dilation != (1, 1) or conv.groups != 1 or conv.padding_mode != "zeros" or isinstance(conv.padding, str):
        return False
    small = all(2 * p < k for p, k in zip(conv.padding, conv.kernel_size, strict=True))
    return conv.bias is not None and small
