"""Triton kernels for K clients at once on a GPU: batch norm, then ReLU, and their gradients.

Numbers are (K, B, H, W, C). A client's mean and variance are those of its own batch, without its padding. A program
sums one part of a client's pixels, so that few clients keep the GPU busy too; parts are added up in order, so that the
same sums come out every time.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

PIXELS, CHANNELS = 128, 32  # of a block
PART = 1024  # pixels that one program sums


@triton.jit
def _real_numbers(x, real, k, m, c, N, P, C):
    """Those of a client's pixels m and channels c, zeros in padding; and where they are none."""
    kept = tl.load(real + (k * N + m) // P, mask=m < N, other=0.0) > 0
    there = kept[:, None] & (c < C)[None, :]
    return tl.load(x + (k * N + m)[:, None] * C + c[None, :], mask=there, other=0.0).to(tl.float32), there


@triton.jit
def _before_relu(y, dy, at, inside):
    """The gradient where the ReLU passed it."""
    passed = tl.load(y + at, mask=inside, other=0.0) > 0
    return tl.where(passed, tl.load(dy + at, mask=inside, other=0.0).to(tl.float32), 0.0)


@triton.jit
def _moments_kernel(
    x, real, count, total, square,
    N: tl.constexpr, P: tl.constexpr, C: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """Of a part's real pixels, for each channel: how many, their sum, and the sum of squares around their mean."""
    k, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    c = tl.program_id(2) * BC + tl.arange(0, BC)
    number, added = tl.zeros((BC,), dtype=tl.float32), tl.zeros((BC,), dtype=tl.float32)
    for start in range(0, PART, BP):
        value, there = _real_numbers(x, real, k, part * PART + start + tl.arange(0, BP), c, N, P, C)
        number += tl.sum(there.to(tl.float32), axis=0)
        added += tl.sum(value, axis=0)
    middle = added / tl.maximum(number, 1.0)
    around = tl.zeros((BC,), dtype=tl.float32)
    for start in range(0, PART, BP):
        value, there = _real_numbers(x, real, k, part * PART + start + tl.arange(0, BP), c, N, P, C)
        off = tl.where(there, value - middle[None, :], 0.0)
        around += tl.sum(off * off, axis=0)
    at = (k * tl.num_programs(1) + part) * C + c
    tl.store(count + at, number, mask=c < C)
    tl.store(total + at, added, mask=c < C)
    tl.store(square + at, around, mask=c < C)


@triton.jit
def _norm_kernel(
    x, mean, scale, bias, y,
    N: tl.constexpr, P: tl.constexpr, C: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(1).to(tl.int64)
    m, c = tl.program_id(0) * BP + tl.arange(0, BP), tl.program_id(2) * BC + tl.arange(0, BC)
    at, inside = (k * N + m)[:, None] * C + c[None, :], (m < N)[:, None] & (c < C)[None, :]
    of = k * C + c
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - tl.load(mean + of, mask=c < C, other=0.0)[None, :]
    value *= tl.load(scale + of, mask=c < C, other=0.0)[None, :]
    value = tl.maximum(value + tl.load(bias + of, mask=c < C, other=0.0)[None, :], 0.0)
    tl.store(y + at, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _norm_sums_kernel(
    x, y, dy, mean, inverse, dw, db,
    N: tl.constexpr, P: tl.constexpr, C: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """What a part adds to the gradients of a channel's weight and bias; padding adds nothing: no loss comes from it."""
    k, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    c = tl.program_id(2) * BC + tl.arange(0, BC)
    middle, by = tl.load(mean + k * C + c, mask=c < C), tl.load(inverse + k * C + c, mask=c < C)
    weight, bias = tl.zeros((BC,), dtype=tl.float32), tl.zeros((BC,), dtype=tl.float32)
    for start in range(0, PART, BP):
        m = part * PART + start + tl.arange(0, BP)
        inside = (m < N)[:, None] & (c < C)[None, :]
        at = (k * N + m)[:, None] * C + c[None, :]
        above = _before_relu(y, dy, at, inside)
        normal = (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - middle[None, :]) * by[None, :]
        weight += tl.sum(above * normal, axis=0)
        bias += tl.sum(above, axis=0)
    at = (k * tl.num_programs(1) + part) * C + c
    tl.store(dw + at, weight, mask=c < C)
    tl.store(db + at, bias, mask=c < C)


@triton.jit
def _norm_gradient_kernel(
    x, y, dy, real, count, mean, inverse, w, dw, db, dx,
    N: tl.constexpr, P: tl.constexpr, C: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(1).to(tl.int64)
    m, c = tl.program_id(0) * BP + tl.arange(0, BP), tl.program_id(2) * BC + tl.arange(0, BC)
    at, inside = (k * N + m)[:, None] * C + c[None, :], (m < N)[:, None] & (c < C)[None, :]
    of = k * C + c
    kept = tl.load(real + (k * N + m) // P, mask=m < N, other=0.0)
    share = kept / tl.maximum(tl.load(count + k * C), 1.0)  # every channel has as many
    above = _before_relu(y, dy, at, inside)
    by, middle = tl.load(inverse + of, mask=c < C, other=0.0), tl.load(mean + of, mask=c < C, other=0.0)
    normal = (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - middle[None, :]) * by[None, :]
    weight, bias = tl.load(dw + of, mask=c < C, other=0.0), tl.load(db + of, mask=c < C, other=0.0)
    drawn = (bias[None, :] + normal * weight[None, :]) * share[:, None]  # through the mean and the variance
    value = (tl.load(w + of, mask=c < C, other=0.0) * by)[None, :] * (above - drawn)
    tl.store(dx + at, value.to(dx.dtype.element_ty), mask=inside)


class NormRelu(torch.autograd.Function):
    """relu(batch norm(x)) for K clients, and the means and unbiased variances (K, C) that running statistics need."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, bias: Tensor, mask: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Weight and bias (K, C); mask (K, B) says which examples are none."""
        real = mask.float().contiguous()
        count, mean, square = _moments(x, real)
        inverse = (square / count.clamp_min(1) + eps).rsqrt()
        y = normalised(x, mean, inverse * w, bias)
        variance = square / (count - 1).clamp_min(1)
        ctx.save_for_backward(x, y, real, count, mean, inverse, w)
        ctx.mark_non_differentiable(mean, variance)
        return y, mean, variance

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        """Through the ReLU, then to the weight and the bias, then to the input."""
        x, y, real, count, mean, inverse, w = ctx.saved_tensors
        sizes, blocks = _sizes(x), _blocks(x)
        dy, dx = grads[0].contiguous(), torch.empty_like(x)
        grid, parts = _parts(x, 2)
        _norm_sums_kernel[grid](x, y, dy, mean, inverse, *parts, **sizes, PART=PART)
        dw, db = parts.sum(dim=2)
        grid = (blocks[0], len(x), blocks[1])
        _norm_gradient_kernel[grid](x, y, dy, real, count, mean, inverse, w, dw, db, dx, **sizes)
        return dx, dw, db, None, None


def _moments(x: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each client's number of real pixels, their mean and the sum of squares around it, by channel: (K, C)."""
    grid, parts = _parts(x, 3)
    _moments_kernel[grid](x, real, *parts, **_sizes(x), PART=PART)
    counts, totals, squares = parts
    count = counts.sum(dim=1)
    mean = totals.sum(dim=1) / count.clamp_min(1)
    off = totals / counts.clamp_min(1) - mean.unsqueeze(1)
    return count, mean, (squares + counts * off * off).sum(dim=1)


def normalised(x: Tensor, mean: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """relu((x - mean) scale + bias), with numbers (K, C) of each client's channels."""
    y, blocks = torch.empty_like(x), _blocks(x)
    _norm_kernel[(blocks[0], len(x), blocks[1])](x, mean, scale.contiguous(), bias.contiguous(), y, **_sizes(x))
    return y


def _sizes(x: Tensor) -> dict[str, int]:
    """N pixels a client, P of them an image, C channels; and those of a block."""
    _, b, h, w, c = x.shape
    return {"N": b * h * w, "P": h * w, "C": c, "BP": PIXELS, "BC": min(CHANNELS, triton.next_power_of_2(c))}


def _blocks(x: Tensor) -> tuple[int, int]:
    """Into how many blocks a client's pixels and channels are cut."""
    sizes = _sizes(x)
    return triton.cdiv(sizes["N"], sizes["BP"]), triton.cdiv(sizes["C"], sizes["BC"])


def _parts(x: Tensor, sums: int) -> tuple[tuple[int, int, int], Tensor]:
    """The programs that sum parts of pixels, and room for what they find: (sums, K, parts, C)."""
    sizes = _sizes(x)
    grid = len(x), triton.cdiv(sizes["N"], PART), _blocks(x)[1]
    return grid, torch.empty(sums, *grid[:2], sizes["C"], device=x.device)
