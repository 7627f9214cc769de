"""Convolution and, where they follow, ReLU and max-pooling for K clients at once on a GPU, with their gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedskew.engine import pooling
from fedskew.engine.convolutions import Pair
from fedskew.engine.factors import Factor, factor
from fedskew.engine.implicit import convolve, weight_gradient


@dataclass(frozen=True)
class Window:
    """How a stage's kernel and pool move over an image."""

    padding: Pair = (0, 0)
    stride: Pair = (1, 1)
    relu: bool = True
    pool: pooling.Pool | None = None  # after a ReLU


class Stage(torch.autograd.Function):
    """maxpool(relu(conv(x))), or less of it, for K clients.

    (K, B, H, W, C) -> (K, B, H', W', O); weights are (K, O, C, kh, kw).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor, window: Window) -> Tensor:
        """Keeps the input as a factor, the weights, and what the gradient asks: who won each window, or the output."""
        inputs, weights = factor(x), factor(_laid_out(w.permute(0, 1, 3, 4, 2), x))
        y = convolve(inputs, weights, bias, window.padding, x.dtype, window.stride, window.relu)
        ctx.window, ctx.shape = window, y.shape
        if window.pool is None:
            ctx.save_for_backward(*inputs, *weights, y)
            return y
        y, winner = pooling.pooled(y, window.pool)
        ctx.save_for_backward(*inputs, *weights, winner)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        """Through the pool and ReLU, then to the input (if anyone asks) and to the weights."""
        x, x_scale, w, w_scale, kept = ctx.saved_tensors
        window, dy = ctx.window, grads[0].contiguous()
        if window.pool is not None:
            above = pooling.through(dy, kept, ctx.shape, window.pool, x.dtype)
        else:
            above = factor(torch.where(kept > 0, dy, 0) if window.relu else dy)
        dw, db = weight_gradient((x, x_scale), above, (w.shape[2], w.shape[3]), window.padding, window.stride)
        dx = _input_gradient(above, (w, w_scale), x, window, dy.dtype) if ctx.needs_input_grad[0] else None
        return dx, dw, db, None


class Pool(torch.autograd.Function):
    """maxpool(x) for K clients, of what a ReLU has passed; where all of a window is zero, so is the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, pool: pooling.Pool) -> Tensor:
        """Keeps who won each window."""
        y, winner = pooling.pooled(x, pool)
        ctx.pool, ctx.shape = pool, x.shape
        ctx.save_for_backward(winner)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """To the winners."""
        (winner,) = ctx.saved_tensors
        dx, _ = pooling.through(grads[0].contiguous(), winner, ctx.shape, ctx.pool, grads[0].dtype)
        return dx, None


def _input_gradient(above: Factor, weights: Factor, x: Tensor, window: Window, dtype: torch.dtype) -> Tensor:
    """A convolution with the kernel turned around; where the kernel took steps, zeros stand between the gradients."""
    (dy, dy_scale), (w, w_scale) = above, weights
    kernel: Pair = (w.shape[2], w.shape[3])
    if window.stride != (1, 1):
        dy = _spread(dy, x, kernel, window)
    turned = w.flip(2, 3).permute(0, 4, 2, 3, 1).contiguous()
    nothing = torch.zeros(len(x), x.shape[4], device=x.device)
    around = (kernel[0] - 1 - window.padding[0], kernel[1] - 1 - window.padding[1])
    return convolve((dy, dy_scale), (turned, w_scale), nothing, around, dtype)


def _spread(dy: Tensor, x: Tensor, kernel: Pair, window: Window) -> Tensor:
    """Gradients at the places that a kernel taking single steps would have, zeros at those that were left out."""
    k, b, _, _, o = dy.shape
    sizes = (x.shape[2 + i] + 2 * window.padding[i] - kernel[i] + 1 for i in range(2))
    spread = torch.zeros(k, b, *sizes, o, device=dy.device, dtype=dy.dtype)
    spread[:, :, :: window.stride[0], :: window.stride[1]] = dy
    return spread


def _laid_out(w: Tensor, like: Tensor) -> Tensor:
    """Contiguous and of the activations' type, in one copy."""
    return torch.empty(w.shape, device=w.device, dtype=like.dtype).copy_(w)
