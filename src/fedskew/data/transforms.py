"""What happens to a batch on the device: bytes to numbers, and for CIFAR-10 crop, flip and standardisation.

The random part of a training batch (`draws`) is made with the batch's indices from a named stream, so every engine and
every device sees the same crops and flips.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedskew.data.dataset import Transform
from fedskew.errors import FedskewError


def output_shape(name: Transform, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an example after the transform; crops keep three quarters of a side (32 -> 24, Zhao and Hsu)."""
    if name != "crop-flip":
        return shape
    if len(shape) != 3 or min(shape[1:]) < 4:
        raise FedskewError(f"transform crop-flip needs images of shape (channels, height, width), not {shape}")
    return shape[0], shape[1] * 3 // 4, shape[2] * 3 // 4


def draws_for(name: Transform) -> bool:
    """Whether a transform makes random choices."""
    return name == "crop-flip"


def draws(name: Transform, shape: tuple[int, ...], n: int, rng: np.random.Generator) -> NDArray[np.int16]:
    """The random choices for n training examples, (n, 3): top, left, flip."""
    _, height, width = output_shape(name, shape)
    ends = (shape[1] - height + 1, shape[2] - width + 1, 2)
    return rng.integers(0, ends, size=(n, 3), dtype=np.int16)


def training(name: Transform, x: Tensor, drawn: Tensor | None, dtype: torch.dtype = torch.float32) -> Tensor:
    """A training batch (n, ...) as the network sees it."""
    if name == "crop-flip":
        assert drawn is not None
        x = _crop(x, drawn[:, 0], drawn[:, 1], drawn[:, 2])
    return _numbers(name, x, dtype)


def testing(name: Transform, x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """A test batch: the centre crop, no flip."""
    if name == "crop-flip":
        _, height, width = output_shape(name, tuple(x.shape[1:]))
        top, left = (x.shape[2] - height) // 2, (x.shape[3] - width) // 2
        x = x[:, :, top : top + height, left : left + width]
    return _numbers(name, x, dtype)


def _numbers(name: Transform, x: Tensor, dtype: torch.dtype) -> Tensor:
    if name == "none":
        return x.to(dtype)
    if name == "scale":
        return x.to(dtype).div_(255) if x.dtype == torch.uint8 else x.to(dtype)
    return _standardise(x.to(dtype))


def _standardise(x: Tensor) -> Tensor:
    """Each image by its own mean and deviation; the floor on the deviation is TensorFlow's, 1 / sqrt(pixels)."""
    deviation, mean = torch.std_mean(x, dim=tuple(range(1, x.dim())), correction=0, keepdim=True)
    return (x - mean) / deviation.clamp_min(1 / math.sqrt(x[0].numel()))


def _crop(x: Tensor, top: Tensor, left: Tensor, flip: Tensor) -> Tensor:
    _, height, width = output_shape("crop-flip", tuple(x.shape[1:]))
    down = torch.arange(height, device=x.device)
    along = torch.arange(width, device=x.device)
    rows = top[:, None].long() + down  # (n, height)
    columns = left[:, None].long() + torch.where(flip[:, None] > 0, width - 1 - along, along)  # (n, width)
    examples = torch.arange(len(x), device=x.device)[:, None, None, None]
    channels = torch.arange(x.shape[1], device=x.device)[None, :, None, None]
    return x[examples, channels, rows[:, None, :, None], columns[:, None, None, :]]
