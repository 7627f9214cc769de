"""Triton kernels for K clients at once on a GPU: CIFAR's input, the step of SGD, and linear layers."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _image_kernel(
    x, index, draws, y, H, W, h, w, floor,
    C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One image: crop, flip and standardise by its own mean and deviation; (n, C, H, W) bytes to (K B, h, w, C)."""
    i = tl.program_id(0).to(tl.int64)
    e = tl.arange(0, BLOCK)
    inside = e < h * w * C
    c, column, row = e % C, (e // C) % w, e // (C * w)
    top, left, flip = tl.load(draws + i * 3), tl.load(draws + i * 3 + 1), tl.load(draws + i * 3 + 2)
    column = tl.where(flip > 0, w - 1 - column, column)
    source = tl.load(index + i) * C * H * W + (c * H + top + row) * W + left + column
    value = tl.load(x + source, mask=inside, other=0).to(tl.float32)
    mean = tl.sum(value) / (h * w * C)
    centred = tl.where(inside, value - mean, 0.0)
    deviation = tl.sqrt(tl.sum(centred * centred) / (h * w * C))
    tl.store(y + i * h * w * C + e, (centred / tl.maximum(deviation, floor)).to(y.dtype.element_ty), mask=inside)


@triton.jit
def _descend_kernel(
    w, g, velocity, shift, rates, decays, active, n, momentum,
    MOMENTUM: tl.constexpr, SHIFT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """w -= rate (g + decay w + shift), with torch.optim.SGD's momentum; a client without a batch stays as it is."""
    k = tl.program_id(1).to(tl.int64)
    if tl.load(active + k):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        at = k * n + i
        value = tl.load(w + at, mask=i < n)
        step = tl.load(g + at, mask=i < n) + tl.load(decays + k).to(tl.float32) * value
        if SHIFT:
            step += tl.load(shift + at, mask=i < n)
        if MOMENTUM:
            step += momentum * tl.load(velocity + at, mask=i < n)
            tl.store(velocity + at, step, mask=i < n)
        tl.store(w + at, value - tl.load(rates + k).to(tl.float32) * step, mask=i < n)


def descend(
    w: Tensor,
    g: Tensor,
    velocity: Tensor | None,
    shift: Tensor | None,
    rates: Tensor,
    decays: Tensor,
    active: Tensor,
    momentum: float,
) -> None:
    """One step of local SGD for a leaf (K, ...) of every client, in place."""
    n = w[0].numel()
    kept, moved = w if velocity is None else velocity, w if shift is None else shift
    _descend_kernel[(triton.cdiv(n, 1024), len(w))](
        w, g.contiguous(), kept, moved, rates, decays, active, n, momentum,
        MOMENTUM=velocity is not None, SHIFT=shift is not None, BLOCK=1024,
    )  # fmt: skip


def images(x: Tensor, index: Tensor, draws: Tensor, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """The crop-flip transform of x[index] for index (K, B), as (K, B, h, w, C)."""
    (_, c, height, width), (h, w) = x.shape, shape
    y = torch.empty(*index.shape, h, w, c, device=x.device, dtype=dtype)
    index, draws = index.contiguous(), draws.contiguous()
    block = triton.next_power_of_2(h * w * c)
    floor = (h * w * c) ** -0.5
    _image_kernel[(index.numel(),)](x, index, draws, y, height, width, h, w, floor, C=c, BLOCK=block, num_warps=4)
    return y


class Linear(torch.autograd.Function):
    """K linear layers at once, (K, B, F) -> (K, B, O), whose weight gradient leaves half precision unrounded."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        """Weights (K, O, F) and bias (K, O) in single precision."""
        weight = w.to(x.dtype)
        ctx.save_for_backward(x, weight)
        return torch.baddbmm(bias.to(x.dtype).unsqueeze(1), x, weight.transpose(1, 2))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        """To the input (if anyone asks), the weights and the bias."""
        x, weight = ctx.saved_tensors
        dy = grads[0]
        dx = torch.bmm(dy, weight) if ctx.needs_input_grad[0] else None
        if x.dtype == torch.float32:
            return dx, torch.bmm(dy.transpose(1, 2), x), dy.sum(dim=1)
        dw = torch.bmm(dy.transpose(1, 2), x, out_dtype=torch.float32)
        return dx, dw, dy.sum(dim=1, dtype=torch.float32)
