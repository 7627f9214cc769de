"""MFCCs of many clips at once, in torch, by Kaldi's convention.

The front end is that of "Hello Edge" (Zhang et al. 2017), which Zhao et al. use: frames of 30 ms every 20 ms, 40 mel
bins from 20 to 4,000 Hz, 10 coefficients. Framing, window (Povey), pre-emphasis, mel scale and liftering are Kaldi's
with snip_edges = false, dither = 0 and use_energy = false: 1 s at 16 kHz gives 50 frames. Samples are in -1..1.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mfcc:
    """The parameters of the front end; two clips' features can be compared only if these are the same."""

    rate: int = 16_000
    frame: int = 480  # samples, 30 ms
    stride: int = 320  # samples, 20 ms
    fft: int = 512
    mel_bins: int = 40
    low: float = 20.0
    high: float = 4_000.0
    coefficients: int = 10
    pre_emphasis: float = 0.97
    lifter: float = 22.0

    def __call__(self, waves: Tensor) -> Tensor:
        """(n, samples) -> (n, frames, coefficients), float32; the arithmetic is in float64."""
        x = _frames(waves.double(), self.frame, self.stride)  # (n, frames, frame)
        x = x - x.mean(dim=-1, keepdim=True)
        x = x - self.pre_emphasis * torch.cat([x[..., :1], x[..., :-1]], dim=-1)
        spectrum: Tensor = torch.fft.rfft(x * _window(self.frame), n=self.fft)
        power = spectrum.real.square() + spectrum.imag.square()  # (n, frames, fft / 2 + 1)
        mel = (power @ _mel_bank(self)).clamp_min(torch.finfo(torch.float32).eps).log()
        mfcc: Tensor = mel @ _cosines(self)
        return mfcc.float()


def _frames(x: Tensor, frame: int, stride: int) -> Tensor:
    """Frames centred on their stride; past an edge the signal is mirrored (Kaldi's snip_edges = false)."""
    count = (x.shape[-1] + stride // 2) // stride
    before = (frame - stride) // 2
    after = (count - 1) * stride + frame - before - x.shape[-1]
    x = torch.cat([x[..., :before].flip(-1), x, x[..., x.shape[-1] - max(after, 0) :].flip(-1)], dim=-1)
    return x.unfold(-1, frame, stride)[..., :count, :]


@functools.cache
def _window(n: int) -> Tensor:
    """Povey's window: Hann's to the power of 0.85."""
    return torch.hann_window(n, periodic=False, dtype=torch.float64).pow(0.85)


@functools.cache
def _mel_bank(m: Mfcc) -> Tensor:
    """(fft / 2 + 1, mel_bins): triangles that are even on the mel scale."""
    hertz = torch.arange(m.fft // 2 + 1, dtype=torch.float64) * m.rate / m.fft
    edges = torch.linspace(_mel(m.low), _mel(m.high), m.mel_bins + 2, dtype=torch.float64)
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    mel = 1127.0 * torch.log1p(hertz / 700.0)[:, None]
    return torch.minimum((mel - left) / (centre - left), (right - mel) / (right - centre)).clamp_min(0.0)


@functools.cache
def _cosines(m: Mfcc) -> Tensor:
    """(mel_bins, coefficients): the orthonormal DCT-II, then Kaldi's sine lifter."""
    k = torch.arange(m.coefficients, dtype=torch.float64)
    n = torch.arange(m.mel_bins, dtype=torch.float64)[:, None]
    dct = torch.cos(math.pi / m.mel_bins * (n + 0.5) * k) * math.sqrt(2.0 / m.mel_bins)
    dct[:, 0] = math.sqrt(1.0 / m.mel_bins)
    return dct * (1.0 + 0.5 * m.lifter * torch.sin(math.pi * k / m.lifter))


def _mel(hertz: float) -> float:
    return 1127.0 * math.log1p(hertz / 700.0)
