"""The network and the batches for the systems on torch."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.peers.work import Weights, Work


def network(work: Work) -> nn.Sequential:
    """The chain of layers with the starting weights."""
    model = nn.Sequential(OrderedDict((layer["name"], _layer(layer)) for layer in work.layers))
    model.to(torch.from_numpy(work.x).dtype).load_state_dict(tensors(work.w))
    return model


def tensors(w: Weights) -> dict[str, Tensor]:
    """A state dict of copies."""
    return {name: torch.tensor(leaf) for name, leaf in w.items()}


def arrays(model: nn.Module) -> Weights:
    """The network's weights."""
    return {name: p.detach().numpy() for name, p in model.named_parameters()}


def batches(work: Work, client: int) -> list[tuple[Tensor, Tensor]]:
    """A client's epoch as slices, in the order given: no data loader's time is counted against anyone."""
    x, y = torch.from_numpy(work.x[client]), torch.from_numpy(work.y[client])
    return list(zip(torch.split(x, work.batch), torch.split(y, work.batch), strict=True))


def described(model: nn.Module) -> list[dict[str, Any]]:
    """The layers of a chain, for any framework to build again."""
    return [{"name": name, **_description(layer)} for name, layer in model.named_children()]


def _description(layer: nn.Module) -> dict[str, Any]:
    match layer:
        case nn.Conv2d():
            size, padding = layer.kernel_size[0], layer.padding[0]
            return {
                "kind": "conv",
                "in": layer.in_channels,
                "out": layer.out_channels,
                "size": size,
                "padding": padding,
            }
        case nn.MaxPool2d():
            return {"kind": "pool", "size": layer.kernel_size, "stride": layer.stride, "padding": layer.padding}
        case nn.Linear():
            return {"kind": "linear", "in": layer.in_features, "out": layer.out_features}
        case nn.ReLU():
            return {"kind": "relu"}
        case nn.Flatten():
            return {"kind": "flatten"}
    raise ValueError(f"no peer is told how to build {layer}")


def _layer(layer: dict[str, Any]) -> nn.Module:
    match layer["kind"]:
        case "conv":
            return nn.Conv2d(layer["in"], layer["out"], layer["size"], padding=layer["padding"])
        case "pool":
            return nn.MaxPool2d(layer["size"], layer["stride"], layer["padding"])
        case "linear":
            return nn.Linear(layer["in"], layer["out"])
        case "relu":
            return nn.ReLU()
        case _:
            return nn.Flatten()
