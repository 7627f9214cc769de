"""Triton kernels for K clients at once on a GPU: convolution and the gradient of its weights as implicit products.

Activations are (K, B, H, W, C), weights (K, O, kh, kw, C). For each kernel row the kw C numbers under it lie side by
side in memory, so a block of output pixels needs one strided load a row and chunk. Sums are split in a fixed way and
added in a fixed order: the same numbers come out every time.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedskew.engine import taps
from fedskew.engine.convolutions import Pair
from fedskew.engine.factors import Factor, precision


@triton.jit
def _conv_kernel(
    x, x_scale, w, w_scale, bias, y, B, ph, pw,
    H: tl.constexpr, W: tl.constexpr, Ho: tl.constexpr, Wo: tl.constexpr, DOWN: tl.constexpr, ALONG: tl.constexpr,
    C: tl.constexpr, O: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    BM: tl.constexpr, BK: tl.constexpr, BO: tl.constexpr,
    RELU: tl.constexpr, SCALED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    o = tl.program_id(2) * BO + tl.arange(0, BO)
    inside = m < B * Ho * Wo
    b, pixel = m // (Ho * Wo), m % (Ho * Wo)
    row0, column0 = pixel // Wo * DOWN - ph, (pixel % Wo * ALONG - pw) * C
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
    x, dy, dw, db, K, B, ph, pw,
    H: tl.constexpr, W: tl.constexpr, Ho: tl.constexpr, Wo: tl.constexpr, DOWN: tl.constexpr, ALONG: tl.constexpr,
    C: tl.constexpr, O: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    BT: tl.constexpr, BP: tl.constexpr, BO: tl.constexpr, STEPS: tl.constexpr, PRECISION: tl.constexpr,
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
        row = (pixel // Wo * DOWN - ph)[:, None] + (t // (KW * C))[None, :]
        at = ((pixel % Wo * ALONG - pw) * C)[:, None] + (t % (KW * C))[None, :]
        is_there = inside[:, None] & (row >= 0) & (row < H) & (at >= 0) & (at < W * C) & (t < KH * KW * C)[None, :]
        here = k * B * H * W * C + (b * H)[:, None] * W * C + row * W * C + at
        above_is = inside[:, None] & (o < O)[None, :]
        there = k * B * Ho * Wo * O + m[:, None] * O + o[None, :]
        patch = tl.load(x + here, mask=is_there, other=0.0)
        above = tl.load(dy + there, mask=above_is, other=0.0)
        total = tl.dot(tl.trans(patch), above, total, input_precision=PRECISION)
        column_total += tl.sum(above.to(tl.float32), axis=0)
    place = (part * K + k) * O + o
    known = (t < KH * KW * C)[None, :] & (o < O)[:, None]
    tl.store(dw + place[:, None] * (KH * KW * C) + t[None, :], tl.trans(total), mask=known)
    if tile % tiles == 0:
        tl.store(db + place, column_total, mask=o < O)


@triton.jit
def _collect_kernel(
    parts, part_biases, dw, db, x_scale, dy_scale, KO, O,
    P: tl.constexpr, T: tl.constexpr, C: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """Sums of parts (P, K, O, T, C) and (P, K, O), the first as torch has weights: (K, O, C, T)."""
    ko = tl.program_id(0).to(tl.int64)
    t, c = tl.arange(0, BT)[:, None], (tl.program_id(1) * BC + tl.arange(0, BC))[None, :]
    known = (t < T) & (c < C)
    total, bias = tl.zeros((BT, BC), dtype=tl.float32), 0.0
    for p in range(P):
        total += tl.load(parts + (p * KO + ko) * T * C + t * C + c, mask=known, other=0.0)
        bias += tl.load(part_biases + p * KO + ko)
    if SCALED:
        bias = bias / tl.load(dy_scale + ko // O)
        total = total / tl.load(dy_scale + ko // O) / tl.load(x_scale + ko // O)
    tl.store(dw + ko * T * C + c * T + t, total, mask=known)
    if tl.program_id(1) == 0:
        tl.store(db + ko, bias)


def convolve(
    factor: Factor,
    weights: Factor,
    bias: Tensor,
    padding: Pair,
    dtype: torch.dtype,
    stride: Pair = (1, 1),
    relu: bool = False,
) -> Tensor:
    """(K, B, H, W, C) and (K, O, kh, kw, C) to (K, B, H', W', O)."""
    (x, x_scale), (w, w_scale) = factor, weights
    k, b, h, wd, c = x.shape
    _, o, kh, kw, _ = w.shape
    ho, wo = (h + 2 * padding[0] - kh) // stride[0] + 1, (wd + 2 * padding[1] - kw) // stride[1] + 1
    y = torch.empty(k, b, ho, wo, o, device=x.device, dtype=dtype)
    pixels, under = b * ho * wo, kh * kw * c
    half = x.element_size() == 2
    bm = 64 if pixels < 512 else 256 if pixels >= 8192 and not half and under > 256 else 128
    bk = 16 if under <= 128 else 64 if half else 32  # 75 numbers under a 5x5x3 kernel: five times sixteen
    bo = min(64, max(16, triton.next_power_of_2(o)))
    grid = (triton.cdiv(pixels, bm), k, triton.cdiv(o, bo))
    _conv_kernel[grid](
        x, x_scale, w, w_scale, bias, y, b, *padding, H=h, W=wd, Ho=ho, Wo=wo, DOWN=stride[0], ALONG=stride[1],
        C=c, O=o, KH=kh, KW=kw, BM=bm, BK=bk, BO=bo,
        RELU=relu, SCALED=x.dtype == torch.float16, PRECISION=precision(),
        num_warps=8 if bm >= 128 else 4, num_stages=3,
    )  # fmt: skip
    return y


def weight_gradient(factor: Factor, above: Factor, kernel: Pair, padding: Pair, stride: Pair) -> tuple[Tensor, Tensor]:
    """Of the weights, (K, O, C, kh, kw), and of the bias, (K, O)."""
    (x, x_scale), (dy, dy_scale) = factor, above
    (k, _, _, _, c), o, (kh, kw) = x.shape, dy.shape[4], kernel
    if taps.fit(x, dy, kernel, stride):
        parts, part_biases = taps.weight_gradient(x, dy, kernel, padding)
    else:
        parts, part_biases = _weight_gradient(x, dy, kernel, padding, stride)
    dw, db = torch.empty(k, o, c, kh, kw, device=x.device), torch.empty(k, o, device=x.device)
    bc = min(64, triton.next_power_of_2(c))
    _collect_kernel[(k * o, triton.cdiv(c, bc))](
        parts, part_biases, dw, db, x_scale, dy_scale, k * o, o,
        P=len(parts), T=kh * kw, C=c, BT=triton.next_power_of_2(kh * kw), BC=bc, SCALED=x.dtype == torch.float16,
    )  # fmt: skip
    return dw, db


def _weight_gradient(x: Tensor, dy: Tensor, kernel: Pair, padding: Pair, stride: Pair) -> tuple[Tensor, Tensor]:
    k, b, h, wd, c = x.shape
    (_, _, ho, wo, o), (kh, kw) = dy.shape, kernel
    under = kh * kw * c
    bt = min(128 if under <= 128 else 64, max(16, triton.next_power_of_2(under)))
    bo = min(64, max(16, triton.next_power_of_2(o)))
    tiles = triton.cdiv(under, bt) * triton.cdiv(o, bo)
    pixels, bp = b * ho * wo, 64 if x.dtype == torch.float32 else 128
    parts = max(1, min(triton.cdiv(pixels, 4 * bp), triton.cdiv(528, tiles * k)))  # four blocks a processor
    steps = triton.cdiv(triton.cdiv(pixels, parts), bp)
    parts = triton.cdiv(pixels, steps * bp)
    dw = torch.empty(parts, k, o, kh * kw, c, device=x.device)
    db = torch.empty(parts, k, o, device=x.device)
    _weight_gradient_kernel[(tiles, k, parts)](
        x, dy, dw, db, k, b, *padding, H=h, W=wd, Ho=ho, Wo=wo, DOWN=stride[0], ALONG=stride[1],
        C=c, O=o, KH=kh, KW=kw, BT=bt, BP=bp, BO=bo, STEPS=steps, PRECISION=precision(),
        num_warps=4, num_stages=2,
    )  # fmt: skip
    return dw, db
