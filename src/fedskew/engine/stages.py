"""Triton kernels for K clients at once on a GPU: convolution, ReLU and max-pooling, with their gradients.

Activations are (K, B, H, W, C), weights (K, O, kh, kw, C). A convolution is an implicit matrix product: for each kernel
row the kw C numbers under it lie side by side in memory, so a block of output pixels needs one strided load a row and
chunk. Sums are split in a fixed way and added in a fixed order: the same numbers come out every time.

TF32 rounds the factors of a product to 11 bits. So does float16, in which tensor cores are twice as fast and take
factors in any order, but its range is small: here factors are scaled, client by client, by a power of two that brings
the largest of them to 2^13 or so, and the product is scaled back in single precision.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _scale_for(largest):
    """The power of two that brings the largest number to between 2^12 and 2^13."""
    return tl.exp2(tl.floor(13.0 - tl.log2(tl.maximum(largest, 1e-30))))


@triton.jit
def _conv_kernel(
    x, x_scale, w, w_scale, bias, y, B, ph, pw,
    H: tl.constexpr, W: tl.constexpr, Ho: tl.constexpr, Wo: tl.constexpr,
    C: tl.constexpr, O: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    BM: tl.constexpr, BK: tl.constexpr, BO: tl.constexpr,
    RELU: tl.constexpr, SCALED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    o = tl.program_id(2) * BO + tl.arange(0, BO)
    inside = m < B * Ho * Wo
    b, pixel = m // (Ho * Wo), m % (Ho * Wo)
    row0, column0 = pixel // Wo - ph, (pixel % Wo - pw) * C
    x += k * B * H * W * C
    w += k * KH * KW * C * O
    total = tl.zeros((BM, BO), dtype=tl.float32)
    for t0 in range(0, KH * KW * C, BK):
        t = t0 + tl.arange(0, BK)  # a number under the kernel: its row, and its place in the row
        row = row0[:, None] + (t // (KW * C))[None, :]
        at = column0[:, None] + (t % (KW * C))[None, :]
        is_there = inside[:, None] & (row >= 0) & (row < H) & (at >= 0) & (at < W * C) & (t < KH * KW * C)[None, :]
        patch = tl.load(x + (b * H)[:, None] * W * C + row * W * C + at, mask=is_there, other=0.0)
        known = (t < KH * KW * C)[:, None] & (o < O)[None, :]
        weight = tl.load(w + o[None, :] * (KH * KW * C) + t[:, None], mask=known, other=0.0)
        total = tl.dot(patch, weight, total, input_precision=PRECISION)
    if SCALED:
        total = total / tl.load(x_scale + k) / tl.load(w_scale + k)
    total += tl.load(bias + k * O + o, mask=o < O, other=0.0)[None, :]
    if RELU:
        total = tl.maximum(total, 0.0)
    out = y + k * B * Ho * Wo * O + m[:, None] * O + o[None, :]
    tl.store(out, total.to(y.dtype.element_ty), mask=inside[:, None] & (o < O)[None, :])


@triton.jit
def _weight_gradient_kernel(
    x, x_scale, dy, dy_scale, dw, db, K, B, ph, pw,
    H: tl.constexpr, W: tl.constexpr, Ho: tl.constexpr, Wo: tl.constexpr,
    C: tl.constexpr, O: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    BT: tl.constexpr, BP: tl.constexpr, BO: tl.constexpr, STEPS: tl.constexpr,
    SCALED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    tiles: tl.constexpr = (KH * KW * C + BT - 1) // BT
    tile, k, part = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    t = (tile % tiles) * BT + tl.arange(0, BT)
    o = (tile // tiles) * BO + tl.arange(0, BO)
    total = tl.zeros((BT, BO), dtype=tl.float32)
    column_total = tl.zeros((BO,), dtype=tl.float32)
    for i in range(STEPS):
        m = (part * STEPS + i) * BP + tl.arange(0, BP)
        inside = m < B * Ho * Wo
        b, pixel = m // (Ho * Wo), m % (Ho * Wo)
        row = (pixel // Wo - ph)[:, None] + (t // (KW * C))[None, :]
        at = ((pixel % Wo - pw) * C)[:, None] + (t % (KW * C))[None, :]
        is_there = inside[:, None] & (row >= 0) & (row < H) & (at >= 0) & (at < W * C) & (t < KH * KW * C)[None, :]
        here = k * B * H * W * C + (b * H)[:, None] * W * C + row * W * C + at
        above_is = inside[:, None] & (o < O)[None, :]
        there = k * B * Ho * Wo * O + m[:, None] * O + o[None, :]
        patch = tl.load(x + here, mask=is_there, other=0.0)
        above = tl.load(dy + there, mask=above_is, other=0.0)
        total = tl.dot(tl.trans(patch), above, total, input_precision=PRECISION)
        column_total += tl.sum(above.to(tl.float32), axis=0)
    if SCALED:
        column_total = column_total / tl.load(dy_scale + k)
        total = total / tl.load(dy_scale + k) / tl.load(x_scale + k)
    place = (part * K + k) * KH * KW * C
    tl.store(dw + (place + t)[:, None] * O + o[None, :], total, mask=(t < KH * KW * C)[:, None] & (o < O)[None, :])
    if tile % tiles == 0:
        tl.store(db + (part * K + k) * O + o, column_total, mask=o < O)


@triton.jit
def _pool_kernel(
    x, y, winner, n,
    H: tl.constexpr, W: tl.constexpr, Ho: tl.constexpr, Wo: tl.constexpr,
    C: tl.constexpr, SIZE: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    i = (tl.program_id(0).to(tl.int64) if WIDE else tl.program_id(0)) * BLOCK + tl.arange(0, BLOCK)
    c, column, row, image = i % C, (i // C) % Wo, (i // (C * Wo)) % Ho, i // (C * Wo * Ho)
    best = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    which = tl.zeros((BLOCK,), dtype=tl.int32)
    for r in tl.static_range(SIZE):
        for s in tl.static_range(SIZE):
            h, w = row * STRIDE - PAD + r, column * STRIDE - PAD + s
            ok = (i < n) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
            value = tl.load(x + ((image * H + h) * W + w) * C + c, mask=ok, other=float("-inf")).to(tl.float32)
            which = tl.where(value > best, r * SIZE + s, which)
            best = tl.maximum(value, best)
    tl.store(y + i, best.to(y.dtype.element_ty), mask=i < n)
    tl.store(winner + i, which.to(tl.uint8), mask=i < n)


@triton.jit
def _pool_gradient_kernel(
    dy, y, winner, dx, largest, scale, n, per_client,
    H: tl.constexpr, W: tl.constexpr, Ho: tl.constexpr, Wo: tl.constexpr,
    C: tl.constexpr, SIZE: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr,
    WIDE: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """Each input looks at the windows over it; a window's gradient passes where the output was positive (ReLU)."""
    i = (tl.program_id(0).to(tl.int64) if WIDE else tl.program_id(0)) * BLOCK + tl.arange(0, BLOCK)
    c, w, h, image = i % C, (i // C) % W, (i // (C * W)) % H, i // (C * W * H)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for a in tl.static_range((SIZE + STRIDE - 1) // STRIDE):
        for b in tl.static_range((SIZE + STRIDE - 1) // STRIDE):
            row, column = (h + PAD) // STRIDE - a, (w + PAD) // STRIDE - b
            r, s = h + PAD - row * STRIDE, w + PAD - column * STRIDE
            ok = (i < n) & (row >= 0) & (row < Ho) & (column >= 0) & (column < Wo) & (r < SIZE) & (s < SIZE)
            at = ((image * Ho + row) * Wo + column) * C + c
            won = tl.load(winner + at, mask=ok, other=255).to(tl.int32) == r * SIZE + s
            positive = tl.load(y + at, mask=ok & won, other=0.0) > 0
            total += tl.load(dy + at, mask=ok & won & positive, other=0.0).to(tl.float32)
    if SCALED:  # as many windows as lie over an input may add up
        k = i // per_client
        windows: tl.constexpr = ((SIZE + STRIDE - 1) // STRIDE) * ((SIZE + STRIDE - 1) // STRIDE)
        by = _scale_for(tl.load(largest + k, mask=i < n, other=1.0) * windows)
        total = total * by
        tl.store(scale + k, by, mask=(i < n) & (i % per_client == 0))
    tl.store(dx + i, total.to(dx.dtype.element_ty), mask=i < n)


@triton.jit
def _scaled_kernel(x, largest, y, scale, n, BLOCK: tl.constexpr):
    k = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    by = _scale_for(tl.load(largest + k))
    tl.store(y + k * n + i, (tl.load(x + k * n + i, mask=i < n, other=0.0) * by).to(tl.float16), mask=i < n)
    if tl.program_id(0) == 0:
        tl.store(scale + k, by)


Factor = tuple[Tensor, Tensor]  # numbers, and what each client's were multiplied by (or, unscaled, anything)


def _factor(x: Tensor) -> Factor:
    """x (K, ...) as a factor of products: as it is, or for TF32 scaled and rounded to float16."""
    if x.dtype != torch.float32 or _precision() != "tf32":
        return x, x
    largest, scale = _largest(x), torch.empty(len(x), device=x.device)
    y = torch.empty(x.shape, device=x.device, dtype=torch.float16)
    n = x[0].numel()
    _scaled_kernel[(triton.cdiv(n, 2048), len(x))](x, largest, y, scale, n, BLOCK=2048)
    return y, scale


def _largest(x: Tensor) -> Tensor:
    largest: Tensor = torch.linalg.vector_norm(x.flatten(1), ord=float("inf"), dim=1)
    return largest


def _convolve(
    factor: Factor, weights: Factor, bias: Tensor, padding: tuple[int, int], relu: bool, dtype: torch.dtype
) -> Tensor:
    (x, x_scale), (w, w_scale) = factor, weights
    k, b, h, wd, c = x.shape
    _, o, kh, kw, _ = w.shape
    ho, wo = h + 2 * padding[0] - kh + 1, wd + 2 * padding[1] - kw + 1
    y = torch.empty(k, b, ho, wo, o, device=x.device, dtype=dtype)
    pixels, taps = b * ho * wo, kh * kw * c
    half = x.element_size() == 2
    bm = 64 if pixels < 512 else 256 if pixels >= 8192 and not half and taps > 256 else 128
    bk = 16 if taps <= 128 else 64 if half else 32  # 75 numbers under a 5x5x3 kernel: five times sixteen
    bo = min(64, max(16, triton.next_power_of_2(o)))
    grid = (triton.cdiv(pixels, bm), k, triton.cdiv(o, bo))
    _conv_kernel[grid](
        x, x_scale, w, w_scale, bias, y, b, *padding, H=h, W=wd, Ho=ho, Wo=wo,
        C=c, O=o, KH=kh, KW=kw, BM=bm, BK=bk, BO=bo,
        RELU=relu, SCALED=x.dtype == torch.float16, PRECISION=_precision(),
        num_warps=8 if bm >= 128 else 4, num_stages=3,
    )  # fmt: skip
    return y


def _weight_gradient(factor: Factor, above: Factor, kh: int, kw: int, padding: tuple[int, int]) -> Factor:
    (x, x_scale), (dy, dy_scale) = factor, above
    k, b, h, wd, c = x.shape
    _, _, ho, wo, o = dy.shape
    taps = kh * kw * c
    bt = min(128 if taps <= 128 else 64, max(16, triton.next_power_of_2(taps)))
    bo = min(64, max(16, triton.next_power_of_2(o)))
    tiles = triton.cdiv(taps, bt) * triton.cdiv(o, bo)
    pixels, bp = b * ho * wo, 64 if x.dtype == torch.float32 else 128
    parts = max(1, min(triton.cdiv(pixels, 4 * bp), triton.cdiv(528, tiles * k)))  # four blocks a processor
    steps = triton.cdiv(triton.cdiv(pixels, parts), bp)
    parts = triton.cdiv(pixels, steps * bp)
    dw = torch.empty(parts, k, kh, kw, c, o, device=x.device)
    db = torch.empty(parts, k, o, device=x.device)
    _weight_gradient_kernel[(tiles, k, parts)](
        x, x_scale, dy, dy_scale, dw, db, k, b, *padding, H=h, W=wd, Ho=ho, Wo=wo,
        C=c, O=o, KH=kh, KW=kw, BT=bt, BP=bp, BO=bo, STEPS=steps,
        SCALED=x.dtype == torch.float16, PRECISION=_precision(),
        num_warps=4, num_stages=2,
    )  # fmt: skip
    return (dw[0], db[0]) if parts == 1 else (dw.sum(dim=0), db.sum(dim=0))


def _precision() -> str:
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


class ConvReluPool(torch.autograd.Function):
    """maxpool(relu(conv(x))) for K clients: (K, B, H, W, C) -> (K, B, H', W', O); weights are (K, O, C, kh, kw)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, bias: Tensor, padding: tuple[int, int], pool: tuple[int, int, int]
    ) -> Tensor:
        """Keeps the input as a factor, the weights, the pooled output and which input won each window."""
        factor, weights = _factor(x), _factor(_laid_out(w.permute(0, 1, 3, 4, 2), x))
        y = _convolve(factor, weights, bias, padding, True, x.dtype)
        size, stride, pad = pool
        k, b, h, wd, o = y.shape
        ho, wo = (h + 2 * pad - size) // stride + 1, (wd + 2 * pad - size) // stride + 1
        pooled = torch.empty(k, b, ho, wo, o, device=x.device, dtype=x.dtype)
        winner = torch.empty(pooled.shape, device=x.device, dtype=torch.uint8)
        n = pooled.numel()
        _pool_kernel[(triton.cdiv(n, 1024),)](
            y, pooled, winner, n, H=h, W=wd, Ho=ho, Wo=wo, C=o,
            SIZE=size, STRIDE=stride, PAD=pad, BLOCK=1024, WIDE=y.numel() >= 2**31,
        )  # fmt: skip
        ctx.save_for_backward(*factor, *weights, pooled, winner)
        ctx.padding, ctx.pool, ctx.before_pool = padding, pool, y.shape
        return pooled

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None, None]:
        """Through the pool and ReLU, then to the input (if anyone asks) and to the weights."""
        x, x_scale, w, w_scale, pooled, winner = ctx.saved_tensors
        above = _through_pool(grads[0].contiguous(), pooled, winner, ctx.before_pool, ctx.pool, x.dtype)
        kh, kw = w.shape[2:4]
        dw, db = _weight_gradient((x, x_scale), above, kh, kw, ctx.padding)
        dx = None
        if ctx.needs_input_grad[0]:
            turned = w.flip(2, 3).permute(0, 4, 2, 3, 1).contiguous()
            nothing = torch.zeros(len(x), x.shape[4], device=x.device)
            around = (kh - 1 - ctx.padding[0], kw - 1 - ctx.padding[1])
            dx = _convolve(above, (turned, w_scale), nothing, around, False, pooled.dtype)
        return dx, dw.permute(0, 4, 3, 1, 2), db, None, None


def _through_pool(
    dy: Tensor,
    pooled: Tensor,
    winner: Tensor,
    shape: tuple[int, ...],
    pool: tuple[int, int, int],
    dtype: torch.dtype,
) -> Factor:
    """The gradient before pool and ReLU, as a factor of the products that follow."""
    (size, stride, pad), (k, _, h, wd, o) = pool, shape
    dx = torch.empty(shape, device=dy.device, dtype=dtype)
    scaled = dtype == torch.float16
    scale = torch.empty(k, device=dy.device)
    n = dx.numel()
    _pool_gradient_kernel[(triton.cdiv(n, 1024),)](
        dy, pooled, winner, dx, _largest(dy) if scaled else scale, scale, n, n // k,
        H=h, W=wd, Ho=pooled.shape[2], Wo=pooled.shape[3], C=o,
        SIZE=size, STRIDE=stride, PAD=pad, BLOCK=1024, WIDE=n >= 2**31, SCALED=scaled,
    )  # fmt: skip
    return dx, scale


def _laid_out(w: Tensor, like: Tensor) -> Tensor:
    """Contiguous and of the activations' type, in one copy."""
    return torch.empty(w.shape, device=w.device, dtype=like.dtype).copy_(w)
