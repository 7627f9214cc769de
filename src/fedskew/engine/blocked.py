"""Networks with a client axis on our own GPU kernels; images are (K, B, H, W, C)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from fedskew.engine import kernels, stages
from fedskew.engine.folded import Layer, Network, Step, reuses


def lower(model: nn.Module) -> Network | None:
    """(K, B, H, W, C) -> logits (K, B, classes) for stages of convolution, ReLU, max-pool and then a vector part."""
    if type(model) is not nn.Sequential or reuses(model):
        return None
    named = list(model._modules.items())
    body = []
    while len(named) >= 3 and (stage := _stage(*named[0], named[1][1], named[2][1])):
        body.append(stage)
        named = named[3:]
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


def _stage(name: str, conv: Any, relu: Any, pool: Any) -> Layer | None:
    if (type(conv), type(relu), type(pool)) != (nn.Conv2d, nn.ReLU, nn.MaxPool2d):
        return None
    if conv.stride != (1, 1) or conv.dilation != (1, 1) or conv.groups != 1 or conv.padding_mode != "zeros":
        return None
    if (
        isinstance(conv.padding, str)
        or conv.bias is None
        or any(2 * p >= k for p, k in zip(conv.padding, conv.kernel_size, strict=True))
    ):
        return None
    shape = (pool.kernel_size, pool.stride, pool.padding)
    if not all(isinstance(value, int) for value in shape) or pool.dilation != 1 or pool.ceil_mode:
        return None

    def layer(step: Step, x: Tensor) -> Tensor:
        y: Tensor = stages.ConvReluPool.apply(  # type: ignore[no-untyped-call]
            x, step.w[f"{name}.weight"], step.w[f"{name}.bias"], conv.padding, shape
        )
        return y

    return layer
