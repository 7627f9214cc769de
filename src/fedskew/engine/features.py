"""What a network knows of an example before its last layer, for methods that compare it (MOON)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from fedskew.errors import FedskewError


def head(model: nn.Module) -> nn.Linear:
    """The layer that turns features into logits: the last of a chain, or a linear layer that is called `head`."""
    last: object = getattr(model, "head", None)
    if isinstance(model, nn.Sequential):
        last = model
        while isinstance(last, nn.Sequential) and len(last):
            last = last[-1]
    if not isinstance(last, nn.Linear) or sum(1 for _ in model.parameters()) <= sum(1 for _ in last.parameters()):
        raise FedskewError(
            f"{type(model).__name__} has no feature extractor: moon needs layers with weights before a last linear "
            "layer, in an nn.Sequential or called `head`"
        )
    return last


@contextmanager
def watched(model: nn.Module) -> Iterator[list[Tensor]]:
    """Collect what the last layer is given, call by call."""
    seen: list[Tensor] = []
    handle = head(model).register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    try:
        yield seen
    finally:
        handle.remove()
