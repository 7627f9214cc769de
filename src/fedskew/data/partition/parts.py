"""The clients of a partition as two arrays, so that a million of them cost no more than their indices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]


class Parts(Sequence[Ints]):
    """One index array a client, each a view of the one array that holds them all, client after client."""

    __slots__ = ("flat", "offsets")

    def __init__(self, flat: Ints, sizes: ArrayLike) -> None:
        self.flat = flat  # (sum of the sizes,)
        self.offsets = np.zeros(np.size(sizes) + 1, np.int64)  # client k holds flat[offsets[k] : offsets[k + 1]]
        np.cumsum(sizes, out=self.offsets[1:])

    @classmethod
    def of(cls, arrays: Iterable[Ints]) -> Parts:
        """The same for clients given as separate arrays."""
        if isinstance(arrays, Parts):
            return arrays
        arrays = list(arrays)
        flat = np.concatenate(arrays) if arrays else np.empty(0)
        return cls(flat.astype(np.int64, copy=False), [len(a) for a in arrays])

    @property
    def sizes(self) -> Ints:
        """How many examples each client holds: (N,)."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, k: int) -> Ints: ...
    @overload
    def __getitem__(self, k: slice) -> Parts: ...
    def __getitem__(self, k: int | slice) -> Ints | Parts:
        if isinstance(k, slice):
            first, last, step = k.indices(len(self))
            if step != 1:
                return Parts.of(self[i] for i in range(first, last, step))
            return Parts(self.flat[self.offsets[first] : self.offsets[last]], np.diff(self.offsets[first : last + 1]))
        k = range(len(self))[k]  # counts from the end and refuses as a list does
        return self.flat[self.offsets[k] : self.offsets[k + 1]]

    def __iter__(self) -> Iterator[Ints]:
        return (self.flat[start:end] for start, end in pairwise(self.offsets))

    def __repr__(self) -> str:
        return f"Parts({len(self)} clients, {len(self.flat)} examples)"
