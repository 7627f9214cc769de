"""How many threads a training step deserves on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

# Below this two threads gain nothing: on two cores a step of the digits MLP takes 1.3 times as long as with one.
SMALL_STEP = 5e7  # floating-point operations


def step_flops(model: nn.Module, shape: tuple[int, ...], batch: int) -> float:
    """The arithmetic of one training step: forward once, backward twice that (a convention)."""
    parameter = next(model.parameters())
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval()(torch.zeros(1, *shape, dtype=parameter.dtype, device=parameter.device))
    forward: int = counter.get_total_flops()
    return 3.0 * batch * forward


@contextmanager
def for_steps_of(flops: float) -> Iterator[None]:
    """One thread for small steps; otherwise as many as torch was given."""
    before = torch.get_num_threads()
    if flops < SMALL_STEP:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
