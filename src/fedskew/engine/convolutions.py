"""A convolution for K clients at once, in two ways: a library's grouped one, or patches and a batched product."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

Pair = tuple[int, int]

# Input channels up to which patches are the faster way. Their time over that of the grouped convolution, forward and
# backward, on one CPU core, for every layer of the shipped networks (benchmarks/results/convolutions_cpu.json):
#   1 or 3 channels      0.48 to 0.83: first layers, which pass no gradient back to their patches
#   10 to 64 channels    1.17 to 4.40
FEW_CHANNELS = 3
# On an H200 (benchmarks/results/convolutions_gpu.json) grouped convolutions take 100.9 ms for all rows, in float64 13.2
# of them where patches take 4.5; this rule takes 85.1, and the better way in every row would take 71.0.
SMALL_BATCH = 10
MOST_PATCHES = 1 << 28  # numbers; patches take the memory of the input times the size of the kernel


@dataclass(frozen=True)
class Shape:
    """All that the choice may depend on."""

    device: str
    dtype: torch.dtype
    clients: int
    batch: int
    channels: int
    outputs: int
    kernel: Pair
    pixels: int  # of the output


def by_patches(shape: Shape) -> bool:
    """Whether patches are the faster way: from the shape alone, since a choice by the clock could change the last bits.

    How many clients there are should matter for memory only: runs trained together then round as they would alone.
    """
    patches = shape.clients * shape.batch * shape.channels * shape.kernel[0] * shape.kernel[1] * shape.pixels
    if shape.device == "cuda":
        small = shape.dtype == torch.float32 and shape.batch <= SMALL_BATCH
        faster = shape.dtype == torch.float64 or shape.channels == 1 or small
    else:
        faster = shape.channels <= FEW_CHANNELS
    return faster and patches <= MOST_PATCHES


def convolve(x: Tensor, w: Tensor, bias: Tensor | None, stride: Pair, padding: Pair, dilation: Pair) -> Tensor:
    """(B, K C, H, W) and weights (K, O, C, kh, kw) to (B, K O, H', W'); or (B, C, H, W), which all clients see."""
    k, o, c, kh, kw = w.shape
    if k > 1 and x.shape[1] > c:
        sizes = zip(x.shape[2:], (kh, kw), stride, padding, dilation, strict=True)
        height, width = ((n + 2 * p - d * (m - 1) - 1) // s + 1 for n, m, s, p, d in sizes)
        if by_patches(Shape(x.device.type, x.dtype, k, len(x), c, o, (kh, kw), height * width)):
            return patches(x, w, bias, stride, padding, dilation)
    return grouped(x, w, bias, stride, padding, dilation)


def grouped(x: Tensor, w: Tensor, bias: Tensor | None, stride: Pair, padding: Pair, dilation: Pair) -> Tensor:
    """Clients as groups of channels; a plain convolution for one client, or when all see the same examples."""
    groups = x.shape[1] // w.shape[2]
    return F.conv2d(x, w.flatten(0, 1), None if bias is None else bias.flatten(), stride, padding, dilation, groups)


def patches(x: Tensor, w: Tensor, bias: Tensor | None, stride: Pair, padding: Pair, dilation: Pair) -> Tensor:
    """What lies under the kernel at each place, copied side by side, and one product a client."""
    k, o, c, kh, kw = w.shape
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))  # before there are kh kw times as many numbers
    (top, left), (down, along) = padding, dilation
    images = F.pad(x, (left, left, top, top))
    images = images.reshape(len(x), k, c, *images.shape[2:])
    windows = images.unfold(3, down * (kh - 1) + 1, stride[0]).unfold(4, along * (kw - 1) + 1, stride[1])
    windows = windows[..., ::down, ::along]  # (B, K, C, H', W', kh, kw), a view
    b, _, _, height, width, _, _ = windows.shape
    under = windows.permute(1, 2, 5, 6, 0, 3, 4).reshape(k, c * kh * kw, b * height * width)
    w = w.flatten(2)
    y = torch.bmm(w, under) if bias is None else torch.baddbmm(bias.unsqueeze(2), w, under)
    return y.view(k, o, b, height, width).permute(2, 0, 1, 3, 4).flatten(1, 2)
