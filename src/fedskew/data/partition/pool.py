"""The examples of each class in random order, to be dealt to clients without replacement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedskew.data.partition.fields import Floats, as_labels
from fedskew.data.partition.parts import Ints, Parts

BLOCK = 1 << 17  # how many numbers a vectorised step holds, so that temporaries stay far below the index arrays


def near_equal(n: int, pieces: int) -> Ints:
    """The sizes of `pieces` pieces of n examples; they differ by at most one."""
    return np.diff(np.arange(pieces + 1, dtype=np.int64) * n // pieces)


def apportion(shares: Floats, n: Ints) -> Ints:
    """Whole numbers in the proportions of each row of shares (R, K) that add up to n (R,)."""
    ends = np.rint(np.cumsum(shares, axis=1) * n[:, None]).astype(np.int64)
    ends = np.minimum(ends, n[:, None])
    ends[:, -1] = n
    return np.diff(ends, axis=1, prepend=0)


def gather(order: Ints, starts: Ints, lengths: Ints, out: Ints) -> None:
    """Write order[s : s + l] of every start and length one after another to `out`."""
    ends = np.cumsum(lengths)
    first = done = 0
    while first < len(lengths):
        # as many pieces as fit a block, at least one
        last = min(max(int(np.searchsorted(ends, done + BLOCK, "right")), first + 1), first + BLOCK)
        stop = int(ends[last - 1])
        size = lengths[first:last]
        at = np.repeat(starts[first:last] - (ends[first:last] - size), size)
        at += np.arange(done, stop)
        np.take(order, at, out=out[done:stop], mode="clip")  # the other modes write through a copy
        first, done = last, stop


class Pool:
    """All examples sorted by class, at random within a class; `left[c]` of class c are not dealt yet."""

    def __init__(self, labels: ArrayLike, rng: np.random.Generator) -> None:
        y = as_labels(labels)
        classes = int(y.max()) + 1 if y.size else 0
        # numpy's radix sort wants narrow numbers, and labels as bytes are an eighth of the memory
        y = y.astype(np.min_scalar_type(classes), copy=False)
        self.order: Ints = np.argsort(y, kind="stable").astype(np.int64, copy=False)
        self.left: Ints = np.bincount(y, minlength=classes).astype(np.int64, copy=False)
        self.at: Ints = np.cumsum(self.left) - self.left
        for start, n in zip(self.at.tolist(), self.left.tolist(), strict=True):
            rng.shuffle(self.order[start : start + n])

    def take(self, counts: Ints, out: Ints) -> None:
        """Deal counts (K, C) of each class to K clients, one client after the other, into `out`."""
        starts = np.cumsum(counts, axis=0)
        used = starts[-1].copy()
        starts += self.at - counts
        gather(self.order, starts.ravel(), counts.ravel(), out)
        self.at += used
        self.left -= used

    def deal(self, blocks: Iterable[Ints], examples: int) -> Parts:
        """One index array a client for blocks (b, C) of counts that add up to so many examples."""
        out, done = np.empty(examples, np.int64), 0
        sizes = []
        for counts in blocks:
            sizes.append(counts.sum(axis=1))
            end = done + int(sizes[-1].sum())
            self.take(counts, out[done:end])
            done = end
        return Parts(out, np.concatenate(sizes))


def in_blocks(counts: NDArray[Any], unit: int = 1) -> Iterator[Ints]:
    """Counts (N, C) of any kind of number as blocks (b, C), each count times the unit."""
    rows = max(1, BLOCK // counts.shape[1])
    return (counts[k : k + rows] * np.int64(unit) for k in range(0, len(counts), rows))
