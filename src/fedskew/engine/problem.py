"""What every way of training shares: the network, the data on the device, and the shape of a result."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedskew.data.dataset import Transform
from fedskew.engine.batches import Cohort
from fedskew.engine.terms import PLAIN, Terms
from fedskew.tree import Tree


@dataclass(frozen=True)
class Problem:
    """All that a client needs beside the weights it is sent; the data set is one tensor on the device."""

    model: nn.Module  # a scratch pad: its own weights are overwritten
    x: Tensor  # (n, ...) uint8 or float
    y: Tensor  # (n,)
    transform: Transform
    weight_decay: float = 0.0
    momentum: float = 0.0
    dtype: torch.dtype = torch.float32
    half: bool = False  # activations in bfloat16; weights, their sums and the test stay as they are


@dataclass(frozen=True)
class Task:
    """A cohort that is to be trained from these weights, and what the method adds to its plain SGD."""

    w: Tree
    stats: Tree
    cohort: Cohort
    terms: Terms = PLAIN


@dataclass(frozen=True)
class Arrived:
    """What came back of a cohort that was trained elsewhere."""

    cohort: Cohort  # the clients whose weights are there, in ascending order
    lost: int  # asked, but no valid reply came in time
    bytes_up: int
    bytes_down: int


@dataclass(frozen=True)
class Trained:
    """A cohort after its local epochs; every leaf carries the client axis."""

    w: Tree  # (K, ...) weights
    stats: Tree  # (K, ...) batch-norm statistics and counters
    loss: Tensor  # (K,) mean training loss over the examples each client went through
    arrived: Arrived | None = None  # from a network: who is left of the cohort


def weights(model: nn.Module) -> tuple[Tree, Tree]:
    """A copy of the network's parameters and of its buffers (batch-norm statistics)."""
    w = {name: p.detach().clone() for name, p in model.named_parameters()}
    stats = {name: b.detach().clone() for name, b in model.named_buffers()}
    return w, stats
