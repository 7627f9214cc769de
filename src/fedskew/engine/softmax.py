"""A Triton kernel for K clients' cross-entropy: the loss of every example and its gradient by the logits in one go.

The gradient carries the client's learning rate. Backpropagation is linear, so what comes out at the weights is the step
itself: a small cohort's time is all kernels, and a step along a gradient would take one more for every layer.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _softmax_kernel(
    z, y, mask, rates, each, d, B,
    C: tl.constexpr, BC: tl.constexpr, BB: tl.constexpr, CHUNKS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(1).to(tl.int64)
    counted = tl.zeros((BB,), dtype=tl.float32)
    for i in range(CHUNKS):
        b = i * BB + tl.arange(0, BB)
        counted += tl.load(mask + k * B + b, mask=b < B, other=0).to(tl.float32)
    held = tl.maximum(tl.sum(counted), 1.0)
    b = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BC)
    row = k * B + b
    inside = (b < B)[:, None] & (c < C)[None, :]
    at = row[:, None] * C + c[None, :]
    logits = tl.load(z + at, mask=inside, other=float("-inf")).to(tl.float32)
    logits = tl.where((b < B)[:, None], logits, 0.0)  # a row of nothing but -inf would give NaN
    real = tl.load(mask + row, mask=b < B, other=0).to(tl.float32)
    label = tl.load(y + row, mask=b < B, other=0)
    shifted = logits - tl.max(logits, axis=1)[:, None]
    power = tl.exp(shifted)
    total = tl.sum(power, axis=1)
    is_label = c[None, :] == label[:, None]
    own = tl.sum(tl.where(is_label, shifted, 0.0), axis=1)
    tl.store(each + row, (tl.log(total) - own) * real, mask=b < B)
    share = real * tl.load(rates + k).to(tl.float32) / held
    gradient = (power / total[:, None] - tl.where(is_label, 1.0, 0.0)) * share[:, None]
    tl.store(d + at, gradient.to(d.dtype.element_ty), mask=inside)


def cross_entropy(z: Tensor, y: Tensor, mask: Tensor, rates: Tensor) -> tuple[Tensor, Tensor]:
    """Losses (K, B), zero where the mask is, and rate times the gradient of each client's mean loss by z (K, B, C)."""
    k, b, classes = z.shape
    z, y, mask = z.contiguous(), y.contiguous(), mask.contiguous()
    each, d = torch.empty(k, b, device=z.device), torch.empty_like(z)
    rows, block = 16, min(1024, triton.next_power_of_2(b))
    _softmax_kernel[(triton.cdiv(b, rows), k)](
        z, y, mask, rates, each, d, b,
        C=classes, BC=triton.next_power_of_2(classes), BB=block, CHUNKS=triton.cdiv(b, block), ROWS=rows, num_warps=1,
    )  # fmt: skip
    return each, d
