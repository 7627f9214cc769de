"""Networks with a client axis on our own GPU kernels; images are (K, B, H, W, C)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from fedskew.engine import kernels, stages
from fedskew.engine.folded import Layer, Network, Step, reuses


def lower(model: nn.Module) -> Network | None:
    """(K, B, H, W, C) -> logits (K, B, classes) for stages of convolution, ReLU and max-pool, then a vector part."""
    if type(model) is not nn.Sequential or reuses(model):
        return None
    named = list(model._modules.items())
    body = []
    while named and (stage := _stage(*named[0], [module for _, module in named[1:3]])):
        layer, length = stage
        body.append(layer)
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
    if type(module) is not nn.Linear or module.bias is None:
        return None

    def layer(step: Step, x: Tensor) -> Tensor:
        y: Tensor = kernels.Linear.apply(x, step.w[f"{name}.weight"], step.w[f"{name}.bias"])  # type: ignore[no-untyped-call]
        return y

    return layer


def _stage(name: str, conv: Any, following: list[Any]) -> tuple[Layer, int] | None:
    """A convolution and what comes after it, ReLU alone or with a max-pool before or after it; how many layers."""
    if not _plain(conv):
        return None
    kinds = tuple(type(module) for module in following)
    pool = None
    if kinds in ((nn.ReLU, nn.MaxPool2d), (nn.MaxPool2d, nn.ReLU)):  # max(relu(x)) is relu(max(x))
        pooling = following[kinds.index(nn.MaxPool2d)]
        pool = (pooling.kernel_size, pooling.stride, pooling.padding)
        if not all(isinstance(value, int) for value in pool) or pooling.dilation != 1 or pooling.ceil_mode:
            return None
    elif kinds[:1] != (nn.ReLU,):
        return None
    window = stages.Window(conv.padding, conv.stride, pool)

    def layer(step: Step, x: Tensor) -> Tensor:
        y: Tensor = stages.ConvReluPool.apply(  # type: ignore[no-untyped-call]
            x, step.w[f"{name}.weight"], step.w[f"{name}.bias"], window
        )
        return y

    return layer, 2 if pool is None else 3


def _plain(conv: Any) -> bool:
    if type(conv) is not nn.Conv2d:
        return False
    if conv.dilation != (1, 1) or conv.groups != 1 or conv.padding_mode != "zeros" or isinstance(conv.padding, str):
        return False
    small = all(2 * p < k for p, k in zip(conv.padding, conv.kernel_size, strict=True))
    return conv.bias is not None and small
