"""A network as a function of its weights, also where a layer or a weight stands in two places."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.func import functional_call

from fedskew.tree import Tree


def function_of(model: nn.Module) -> Callable[[Tree, Tensor], Tensor]:
    """(weights and statistics by name, x) -> what the model gives.

    torch's own way of tying weights puts the tensors of a layer with two names in twice, and takes out one of the two:
    the model then keeps a tensor that was only lent to it. Here each place is filled once.
    """
    first: dict[Tensor, str] = {}  # the names of named_parameters and named_buffers
    places = []  # (place, name)
    for path, module in model.named_modules():
        for held in (module._parameters, module._buffers):
            for key, tensor in held.items():
                if tensor is not None:
                    place = f"{path}.{key}" if path else key
                    places.append((place, first.setdefault(tensor, place)))

    def called(tensors: Tree, x: Tensor) -> Tensor:
        filled = {place: tensors[name] for place, name in places}
        y: Tensor = functional_call(model, filled, (x,), tie_weights=False)
        return y

    return called
