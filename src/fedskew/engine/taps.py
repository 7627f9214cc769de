"""A Triton kernel for K clients' weight gradients that lets the GPU's own copy engine fetch what lies under the kernel.

A block of output pixels is a box: some images by some rows by some columns. Moved by a tap of the kernel, it is the
box of inputs under that tap, and what of it lies outside of the image comes back as zeros. One program holds the sums
of a whole kernel row, so the gradients above are read once for all its taps.
"""

from __future__ import annotations

from functools import cache
from itertools import product

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from fedskew.engine.convolutions import Pair

BOX = 64  # pixels
MOST_TAPS = 5  # in a kernel row: their sums must fit the registers
SLOTS = 264  # programs that an H200 runs at once, two a processor


@triton.jit
def _row_kernel(
    x, dy, dw, db, K, ph, pw, across, down,
    C: tl.constexpr, O: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    NB: tl.constexpr, TH: tl.constexpr, TW: tl.constexpr, BC: tl.constexpr, BO: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    job, k, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    r, c0, o0 = job % KH, (job // KH) % (C // BC) * BC, job // (KH * (C // BC)) * BO
    pixels: tl.constexpr = NB * TH * TW
    totals = (tl.zeros((BO, BC), dtype=tl.float32),) * KW
    bias = tl.zeros((BO,), dtype=tl.float32)
    for i in range(STEPS):
        tile = part * STEPS + i
        column, row, b = tile % across * TW, tile // across % down * TH, tile // (across * down) * NB
        above = dy.load([k, b, row, column, o0]).reshape(pixels, BO)
        sums = ()  # Triton's tuples grow by sums alone
        for s in tl.static_range(KW):
            under = x.load([k, b, row + r - ph, column + s - pw, c0]).reshape(pixels, BC)
            sums = sums + (tl.dot(above.T, under, totals[s]),)  # type: ignore[assignment] # noqa: RUF005
        totals = sums
        bias += tl.sum(above.to(tl.float32), axis=0)
    o, c = o0 + tl.arange(0, BO), c0 + tl.arange(0, BC)
    place = (part * K + k).to(tl.int64) * O + o
    for s in tl.static_range(KW):
        at = (place[:, None] * KH * KW + r * KW + s) * C + c[None, :]
        tl.store(dw + at, totals[s], mask=(o < O)[:, None])
    if job % (KH * (C // BC)) == 0:
        tl.store(db + place, bias, mask=o < O)


def fit(x: Tensor, dy: Tensor, kernel: Pair, stride: Pair) -> bool:
    """Whether boxes do: 16-bit numbers, channels in steps of 16 bytes and in blocks of sixteen, no stride."""
    even = x.element_size() == 2 and x.shape[4] % 16 == 0 and dy.shape[4] % 8 == 0
    return even and stride == (1, 1) and kernel[1] <= MOST_TAPS


def weight_gradient(x: Tensor, dy: Tensor, kernel: Pair, padding: Pair) -> tuple[Tensor, Tensor]:
    """Parts (P, K, O, kh kw, C) and (P, K, O), to be summed."""
    k, b, _, _, c = x.shape
    (_, _, ho, wo, o), (kh, kw) = dy.shape, kernel
    nb, th, tw = box(b, ho, wo)
    across, down = triton.cdiv(wo, tw), triton.cdiv(ho, th)
    tiles = across * down * triton.cdiv(b, nb)
    bc, bo = next(size for size in (64, 32, 16) if c % size == 0), min(64, max(16, triton.next_power_of_2(o)))
    jobs = kh * (c // bc) * triton.cdiv(o, bo)
    steps = triton.cdiv(tiles, _parts(tiles, jobs * k))
    parts = triton.cdiv(tiles, steps)
    dw = torch.empty(parts, k, o, kh * kw, c, device=x.device)
    db = torch.empty(parts, k, o, device=x.device)
    inputs = TensorDescriptor.from_tensor(x, [1, nb, th, tw, bc])
    above = TensorDescriptor.from_tensor(dy, [1, nb, th, tw, bo])
    _row_kernel[(jobs, k, parts)](
        inputs, above, dw, db, k, *padding, across, down,
        C=c, O=o, KH=kh, KW=kw, NB=nb, TH=th, TW=tw, BC=bc, BO=bo, STEPS=steps,
        num_warps=4, num_stages=2 if bc == 64 else 3,  # three of the largest leave room for one program a processor
    )  # fmt: skip
    return dw, db


@cache
def box(images: int, rows: int, columns: int) -> tuple[int, int, int]:
    """Of the boxes of BOX pixels, the one that covers these with the least beside them; of those, the flattest."""
    powers = [1 << i for i in range(BOX.bit_length())]
    boxes = [(nb, th, BOX // (nb * th)) for nb, th in product(powers, powers) if BOX % (nb * th) == 0]

    def waste(sides: tuple[int, int, int]) -> tuple[int, int]:
        covered = [triton.cdiv(n, side) * side for n, side in zip((images, rows, columns), sides, strict=True)]
        return covered[0] * covered[1] * covered[2], sides[0]

    return min(boxes, key=waste)


@cache
def _parts(tiles: int, jobs: int) -> int:
    """Into how many parts to split the sum: programs come in waves, and each has a start-up of some tiles."""

    def time(parts: int) -> int:
        return int(triton.cdiv(jobs * parts, SLOTS) * (triton.cdiv(tiles, parts) + 4))

    return min(range(1, min(tiles, 16) + 1), key=time)
