"""The numbers that a GPU's tensor cores multiply: half precision as it is, TF32 as scaled float16.

TF32 rounds the factors of a product to 11 bits. So does float16, in which tensor cores are twice as fast and take
factors in any order, but its range is small: here factors are scaled, client by client, by a power of two that brings
the largest of them to 2^13 or so, and the product is scaled back in single precision.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

Factor = tuple[Tensor, Tensor]  # numbers, and what each client's were multiplied by (or, unscaled, anything)


@triton.jit
def scale_for(largest):
    """The power of two that brings the largest number to between 2^12 and 2^13."""
    return tl.exp2(tl.floor(13.0 - tl.log2(tl.maximum(largest, 1e-30))))


@triton.jit
def _largest_kernel(x, largest, n, BLOCK: tl.constexpr):
    k = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.max(tl.abs(tl.load(x + k * n + i, mask=i < n, other=0.0).to(tl.float32)))
    tl.atomic_max(largest + k, value)  # in whatever order: the largest is the same


@triton.jit
def _scaled_kernel(x, largest, y, scale, n, BLOCK: tl.constexpr):
    k = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    by = scale_for(tl.load(largest + k))
    tl.store(y + k * n + i, (tl.load(x + k * n + i, mask=i < n, other=0.0) * by).to(tl.float16), mask=i < n)
    if tl.program_id(0) == 0:
        tl.store(scale + k, by)


def factor(x: Tensor) -> Factor:
    """x (K, ...) as a factor of products: as it is, or for TF32 scaled and rounded to float16."""
    if x.dtype != torch.float32 or precision() != "tf32":
        return x, x
    by, scale = largest(x), torch.empty(len(x), device=x.device)
    y = torch.empty(x.shape, device=x.device, dtype=torch.float16)
    n = x[0].numel()
    _scaled_kernel[(triton.cdiv(n, 2048), len(x))](x, by, y, scale, n, BLOCK=2048)
    return y, scale


def largest(x: Tensor) -> Tensor:
    """Of each client's numbers, without their sign."""
    found, n = torch.zeros(len(x), device=x.device), x[0].numel()
    _largest_kernel[(triton.cdiv(n, 8192), len(x))](x.contiguous(), found, n, BLOCK=8192, num_warps=8)
    return found


def precision() -> str:
    """How Triton multiplies single-precision numbers where they are not scaled."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
