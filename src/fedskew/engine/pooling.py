"""Triton kernels for K clients at once on a GPU: max-pooling after a ReLU, and its gradient.

A block is some pixels by some channels, so that where a pixel lies is worked out once for all its channels. Numbers are
(K, B, H, W, C).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedskew.engine.factors import Factor, largest, scale_for

PIXELS = 16
NOBODY = 255  # who won a window in which nothing was positive: the ReLU passes no gradient there
Pool = tuple[int, int, int]  # size, stride, padding


@triton.jit
def _pool_kernel(
    x, y, winner, pixels,
    H: tl.constexpr, W: tl.constexpr, Ho: tl.constexpr, Wo: tl.constexpr, C: tl.constexpr,
    SIZE: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr,
    BP: tl.constexpr, BC: tl.constexpr, WIDE: tl.constexpr, NONE: tl.constexpr,
):  # fmt: skip
    p = (tl.program_id(0).to(tl.int64) if WIDE else tl.program_id(0)) * BP + tl.arange(0, BP)
    c = (tl.program_id(1) * BC + tl.arange(0, BC))[None, :]
    column, row, image = p % Wo, (p // Wo) % Ho, p // (Wo * Ho)
    best = tl.zeros((BP, BC), dtype=tl.float32)
    which = tl.full((BP, BC), NONE, dtype=tl.int32)
    for r in tl.static_range(SIZE):
        for s in tl.static_range(SIZE):
            h, w = row * STRIDE - PAD + r, column * STRIDE - PAD + s
            ok = (p < pixels) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
            at = ((image * H + h) * W + w)[:, None] * C + c
            value = tl.load(x + at, mask=ok[:, None] & (c < C), other=0.0).to(tl.float32)
            which = tl.where(value > best, r * SIZE + s, which)
            best = tl.maximum(value, best)
    inside = (p < pixels)[:, None] & (c < C)
    tl.store(y + p[:, None] * C + c, best.to(y.dtype.element_ty), mask=inside)
    tl.store(winner + p[:, None] * C + c, which.to(tl.uint8), mask=inside)


@triton.jit
def _pool_gradient_kernel(
    dy, winner, dx, most, scale, pixels, per_client,
    H: tl.constexpr, W: tl.constexpr, Ho: tl.constexpr, Wo: tl.constexpr, C: tl.constexpr,
    SIZE: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr,
    BP: tl.constexpr, BC: tl.constexpr, WIDE: tl.constexpr, NONE: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """Each input looks at the windows over it."""
    p = (tl.program_id(0).to(tl.int64) if WIDE else tl.program_id(0)) * BP + tl.arange(0, BP)
    c = (tl.program_id(1) * BC + tl.arange(0, BC))[None, :]
    w, h, image = p % W, (p // W) % H, p // (W * H)
    windows: tl.constexpr = (SIZE + STRIDE - 1) // STRIDE
    total = tl.zeros((BP, BC), dtype=tl.float32)
    for a in tl.static_range(windows):
        for b in tl.static_range(windows):
            row, column = (h + PAD) // STRIDE - a, (w + PAD) // STRIDE - b
            r, s = h + PAD - row * STRIDE, w + PAD - column * STRIDE
            ok = (p < pixels) & (row >= 0) & (row < Ho) & (column >= 0) & (column < Wo) & (r < SIZE) & (s < SIZE)
            at = ((image * Ho + row) * Wo + column)[:, None] * C + c
            there = ok[:, None] & (c < C)
            won = tl.load(winner + at, mask=there, other=NONE).to(tl.int32) == (r * SIZE + s)[:, None]
            total += tl.where(won, tl.load(dy + at, mask=there, other=0.0).to(tl.float32), 0.0)
    if SCALED:  # as many windows as lie over an input may add up
        k = p // per_client
        by = scale_for(tl.load(most + k, mask=p < pixels, other=1.0) * (windows * windows))
        total = total * by[:, None]
        tl.store(scale + k, by, mask=(p < pixels) & (p % per_client == 0))
    tl.store(dx + p[:, None] * C + c, total.to(dx.dtype.element_ty), mask=(p < pixels)[:, None] & (c < C))


def pooled(x: Tensor, pool: Pool) -> tuple[Tensor, Tensor]:
    """max-pool of x, which has no negative number; and which number of each window won."""
    size, stride, pad = pool
    k, b, h, w, c = x.shape
    ho, wo = (h + 2 * pad - size) // stride + 1, (w + 2 * pad - size) // stride + 1
    y = torch.empty(k, b, ho, wo, c, device=x.device, dtype=x.dtype)
    winner = torch.empty(y.shape, device=x.device, dtype=torch.uint8)
    pixels = k * b * ho * wo
    grid, bc = _grid(pixels, c)
    _pool_kernel[grid](
        x, y, winner, pixels, H=h, W=w, Ho=ho, Wo=wo, C=c,
        SIZE=size, STRIDE=stride, PAD=pad, BP=PIXELS, BC=bc, WIDE=x.numel() >= 2**31, NONE=NOBODY,
    )  # fmt: skip
    return y, winner


def through(dy: Tensor, winner: Tensor, shape: tuple[int, ...], pool: Pool, dtype: torch.dtype) -> Factor:
    """The gradient before pool and ReLU, where numbers had this shape; as a factor of the products that follow."""
    (size, stride, pad), (k, b, h, w, c) = pool, shape
    dx = torch.empty(shape, device=dy.device, dtype=dtype)
    scaled = dtype == torch.float16
    scale = torch.empty(k, device=dy.device)
    pixels = k * b * h * w
    grid, bc = _grid(pixels, c)
    _pool_gradient_kernel[grid](
        dy, winner, dx, largest(dy) if scaled else scale, scale, pixels, b * h * w,
        H=h, W=w, Ho=winner.shape[2], Wo=winner.shape[3], C=c,
        SIZE=size, STRIDE=stride, PAD=pad, BP=PIXELS, BC=bc, WIDE=dx.numel() >= 2**31, NONE=NOBODY, SCALED=scaled,
    )  # fmt: skip
    return dx, scale


def _grid(pixels: int, channels: int) -> tuple[tuple[int, int], int]:
    block = min(64, triton.next_power_of_2(channels))
    return (triton.cdiv(pixels, PIXELS), triton.cdiv(channels, block)), block
