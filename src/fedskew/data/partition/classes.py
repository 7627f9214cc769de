"""Clients that hold a few classes each: exactly n classes, or n shards of the sorted data."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from fedskew.data.partition.fields import Clients, enough
from fedskew.data.partition.parts import Ints, Parts
from fedskew.data.partition.pool import BLOCK, Pool, gather, in_blocks, near_equal
from fedskew.errors import FedskewError
from fedskew.spec import Spec


class Classes(Spec):
    """Exactly n classes a client (Zhao et al. 2018, section 2.1, with n = 1 and 2; Lahoti et al.'s n-class).

    Sizes are equal and what is left of larger classes is dropped; with `keep` all of a dealt class is used.
    """

    kind: Literal["classes"] = "classes"
    positional: ClassVar[str | None] = "n"
    clients: Clients = 10
    n: int = Field(ge=1)
    keep: bool = False

    def __call__(self, labels: ArrayLike, rng: np.random.Generator, groups: ArrayLike | None = None) -> Parts:
        """One index array a client."""
        pool = Pool(labels, rng)
        enough(self.kind, self.clients, len(pool.order))
        present = np.flatnonzero(pool.left)
        if self.n > len(present):
            raise FedskewError(f"{self}: n = {self.n}: the data has {len(present)} classes; lower it")
        pieces = np.zeros_like(pool.left)  # in how many each class is cut; the larger ones get the odd ones
        pieces[present], odd = divmod(self.clients * self.n, len(present))
        pieces[np.lexsort((rng.random(len(pieces)), -pool.left))[:odd]] += 1
        if (pool.left < pieces).any():
            c = int(np.argmax(pool.left < pieces))
            raise FedskewError(
                f"{self}: clients = {self.clients}: class {c} would be cut into {pieces[c]} pieces and has "
                f"{pool.left[c]} examples; use fewer clients or another partition"
            )
        held = _hands(pieces, self.clients, self.n, rng)
        dealt = np.flatnonzero(pieces)
        if not self.keep:
            size = int(np.min(pool.left[dealt] // pieces[dealt]))
            return pool.deal(in_blocks(held, size), self.clients * self.n * size)
        counts = np.zeros(held.shape, np.int64)
        for c in dealt.tolist():
            counts[held[:, c], c] = rng.permutation(near_equal(int(pool.left[c]), int(pieces[c])))
        return pool.deal(in_blocks(counts), int(counts.sum()))


class Shards(Spec):
    """Sort by label, cut into n N near-equal shards, deal n to each client (McMahan et al. 2017)."""

    kind: Literal["shards"] = "shards"
    positional: ClassVar[str | None] = "n"
    clients: Clients = 10
    n: int = Field(ge=1)

    def __call__(self, labels: ArrayLike, rng: np.random.Generator, groups: ArrayLike | None = None) -> Parts:
        """One index array a client."""
        pool = Pool(labels, rng)
        n, shards = len(pool.order), self.clients * self.n
        enough(self.kind, self.clients, n)
        if shards > n:
            raise FedskewError(
                f"{self}: n = {self.n}: {self.clients} clients need {shards} examples and there are {n}; "
                f"use at most {n // self.clients}"
            )
        sizes = near_equal(n, shards)
        hand = rng.permutation(shards)
        out = np.empty(n, np.int64)
        gather(pool.order, (np.cumsum(sizes) - sizes)[hand], sizes[hand], out)
        return Parts(out, sizes[hand].reshape(self.clients, self.n).sum(axis=1))


def _hands(pieces: Ints, clients: int, n: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Deal pieces[c] of each class c so that every client holds n different classes: (N, C) of bool.

    A class with as many pieces left as there are clients must go to each of them; the others are drawn in
    proportion to their pieces. So no class ever has more pieces than clients, and the deal always ends well.
    """
    held = np.zeros((clients, len(pieces)), np.bool_)
    left = pieces.astype(np.float64)
    block = max(1, BLOCK // len(pieces))
    for first in range(0, clients, block):
        clocks = rng.standard_exponential((min(block, clients - first), len(pieces)))
        with np.errstate(divide="ignore"):
            for i, clock in enumerate(clocks, first):
                # the first n of clocks with these rates are n draws without replacement in proportion to them
                time = clock / left
                time[left == clients - i] = -1.0
                chosen = np.argpartition(time, n - 1)[:n]
                held[i, chosen] = True
                left[chosen] -= 1
    return held
