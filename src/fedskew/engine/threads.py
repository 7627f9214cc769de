"""How many threads a training step deserves on a CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache

import torch
from torch import Tensor, nn

from fedskew import tree
from fedskew.tree import Tree

# Below this two threads gain nothing: on two cores a step of the digits MLP takes 1.3 times as long as with one.
SMALL_STEP = 5e7  # floating-point operations
# Of all clients in one operation. Two threads' time over one's: softmax regression of 100 clients 1.3 (4.7e7), 0.93
# (9.4e7) and of 300 0.88 (1.4e8); MLP of ten clients 2.0 (3.3e7), 1.3 (1.2e8) and 0.90 (2.4e8).
SMALL_STACK = 1.3e8
# Of what a server averages. A second thread gains milliseconds at best; where another process uses the cores, the mean
# of 100 softmax regressions took 8 ms with two threads and 0.16 with one.
SMALL_MEAN = 1e8  # numbers

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # of malloc.h


def step_flops(model: nn.Module, shape: tuple[int, ...], batch: int) -> float:
    """The products of one training step, in layers that torch has: forward once, backward twice that (a convention).

    Counted by hand: torch's own counter loads its compiler first, which takes a second or two.
    """
    forward = 0

    def count(layer: nn.Module, _: object, y: Tensor) -> None:
        nonlocal forward
        forward += 2 * y.numel() * layer.weight[0].numel()  # type: ignore[index]

    layers = [m for m in model.modules() if isinstance(m, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d))]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    parameter = next(model.parameters())
    try:
        with torch.no_grad():
            model.eval()(torch.zeros(1, *shape, dtype=parameter.dtype, device=parameter.device))
    finally:
        for hook in hooks:
            hook.remove()
    return 3.0 * batch * forward


@contextmanager
def for_steps_of(size: float, small: float = SMALL_STEP) -> Iterator[None]:
    """One thread for small steps; otherwise as many as torch was given."""
    with restored():
        if size < small:
            torch.set_num_threads(1)
        yield


def for_mean_of(w: Tree) -> AbstractContextManager[None]:
    """The same for a server that averages weights (K, ...)."""
    return for_steps_of(tree.size(w), SMALL_MEAN)


@contextmanager
def restored() -> Iterator[None]:
    """As many threads afterwards as before, for this thread and for threads yet to come.

    What torch.set_num_threads says holds for the thread that calls it and for those that start later.
    """
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def pool(workers: int, inside: int = 1) -> Iterator[ThreadPoolExecutor]:
    """So many threads, each of which may use `inside` threads in an operation."""
    with restored(), ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(inside,)) as executor:
        yield executor


def shared_out(work: Callable[[slice], None], clients: int, workers: int) -> None:
    """Give each of several threads its share of the clients.

    They meet once, at the end. Threads that share out every operation meet thousands of times a round, and wait for the
    system's scheduler each time when another process uses a core: softmax regression took thirty times as long.
    """
    if workers == 1:
        return work(slice(0, clients))
    ends = [clients * i // workers for i in range(workers + 1)]
    with pool(workers) as executor:
        for _ in executor.map(work, map(slice, ends[:-1], ends[1:])):
            pass
    return None


@cache
def keep_memory() -> None:
    """Tell the C library to keep the memory of freed activations for the next step.

    glibc gives large blocks back to the system at once, and a step can spend two thirds of its time on pages that were
    its own a moment before: a convolution from 1 to 32 channels on 100 images takes 15 ms then, and 4 ms so.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return  # not glibc
    for option, value in ((M_MMAP_THRESHOLD, 32 << 20), (M_TRIM_THRESHOLD, 1 << 30), (M_TOP_PAD, 64 << 20)):
        mallopt(option, value)
