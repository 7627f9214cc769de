"""Dropout whose mask is a function of (key, place): the same in every engine and on every device.

torch draws dropout from a generator, so the mask would depend on how many clients share a call. Here element i of a
client's batch is kept if a hash of the client's key and i says so.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

# The multipliers of the 64-bit finaliser of splitmix64 (Steele, Lea and Flood 2014), as signed numbers.
_ODD = (-4658895280553007687, -7723592293110705685)


def uniform(key: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Numbers in [0, 1) for a key () or keys (K,), one a place: shape, or (K, *shape)."""
    places = torch.arange(torch.Size(shape).numel(), device=key.device)
    z = key.reshape(*key.shape, 1) + places * -7046029254386353131
    for shift, odd in zip((30, 27), _ODD, strict=True):
        z = (z ^ _shifted(z, shift)) * odd
    z = z ^ _shifted(z, 31)
    return (_shifted(z, 40).float() / 2**24).reshape(*key.shape, *shape)


def _shifted(z: Tensor, bits: int) -> Tensor:
    """A shift that fills with zeros; torch's own fills with the sign."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


class SeededDropout(nn.Module):
    """nn.Dropout with a `key`, which the engine sets before each step: () alone, (K,) for K clients at once."""

    key: Tensor

    def __init__(self, p: float, number: int) -> None:
        super().__init__()
        self.p, self.number = p, number  # two layers of one network need different masks

    def mask(self, key: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """1 / (1 - p) where an element is kept, 0 where it is dropped."""
        kept = uniform(key + self.number * 1_000_003, shape) >= self.p
        return kept.to(dtype) / (1 - self.p)

    def forward(self, x: Tensor) -> Tensor:
        """Drop in training only."""
        return x * self.mask(self.key, tuple(x.shape), x.dtype) if self.training and self.p > 0 else x


def with_seeded_dropout(model: nn.Module) -> nn.Module:
    """A copy of the network in which every nn.Dropout is seeded."""
    model = copy.deepcopy(model)
    number = 0
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):  # a layer in two places gets a mask for each
            if type(child) is nn.Dropout:
                setattr(parent, name, SeededDropout(child.p, number))
                number += 1
    return model


def set_keys(model: nn.Module, key: Tensor) -> None:
    """Tell every seeded layer the key of the coming step."""
    for module in model.modules():
        if isinstance(module, SeededDropout):
            module.key = key
