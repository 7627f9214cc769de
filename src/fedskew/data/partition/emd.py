"""Clients at a wanted earth mover's distance from the population (Zhao et al. 2018, section 3.2.1)."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field

from fedskew.data.partition.draws import capped
from fedskew.data.partition.fields import Clients
from fedskew.data.partition.parts import Ints, Parts
from fedskew.data.partition.pool import BLOCK, Pool
from fedskew.errors import FedskewError
from fedskew.spec import Spec


class Emd(Spec):
    """One label distribution P at the wanted EMD, shifted by one class from client to client.

    All in whole examples: M a client, of which E = value M / 2 are moved from some classes to others, so each
    client's EMD is 2 E / M. Every class is used equally often, no example twice, and the surplus of larger
    classes is dropped. Another seed gives another P.
    """

    kind: Literal["emd"] = "emd"
    positional: ClassVar[str | None] = "value"
    clients: Clients = 10
    value: float = Field(ge=0)

    def __call__(self, labels: ArrayLike, rng: np.random.Generator, groups: ArrayLike | None = None) -> Parts:
        """One index array a client."""
        pool = Pool(labels, rng)
        present = np.flatnonzero(pool.left)
        classes = len(present)
        if classes == 0:
            raise FedskewError(f"{self}: there are no examples; at least one a client is needed")
        largest = 2 * (classes - 1) / classes
        if self.value > largest + 1e-9:
            raise FedskewError(f"{self} cannot be reached with {classes} classes: the largest is {largest:g}; lower it")
        if self.clients % classes:
            below = self.clients // classes * classes
            nearest = f"{below} or {below + classes}" if below else f"{classes}"
            raise FedskewError(
                f"{self}: clients = {self.clients}: one distribution is shifted over {classes} classes, "
                f"so it should be a multiple of {classes}; use {nearest}"
            )
        least = int(pool.left[present].min())
        each = least // self.clients  # of each class in an even client; all clients use clients * each of a class
        if each == 0:
            usable = least // classes * classes
            remedy = f"use at most {usable} clients" if usable else "use another partition or drop that class"
            raise FedskewError(
                f"{self}: clients = {self.clients}: each class needs as many examples and class "
                f"{present[pool.left[present].argmin()]} has {least}; {remedy}"
            )
        size = classes * each
        excess = min(round(self.value * size / 2), size - each)
        first = _distribution(classes, each, excess, rng)
        turn = np.zeros((classes, len(pool.left)), np.int64)  # the counts of as many clients as there are classes
        turn[:, present] = first[(np.arange(classes) - np.arange(classes)[:, None]) % classes]
        turns, at_once = self.clients // classes, max(1, BLOCK // turn.size)
        blocks = (np.tile(turn, (min(at_once, turns - i), 1)) for i in range(0, turns, at_once))
        return pool.deal(blocks, size * self.clients)


def _distribution(classes: int, each: int, excess: int, rng: np.random.Generator) -> Ints:
    """Random counts over the classes that differ from `each` by `excess` upwards and as many downwards."""
    counts = np.full(classes, each, np.int64)
    if excess == 0:
        return counts
    most = classes - -(-excess // each)  # the other classes must be able to give the excess
    order = rng.permutation(classes)
    more = int(rng.integers(1, most + 1))
    up, down = order[:more], order[more:]
    counts[up] += rng.multinomial(excess, rng.dirichlet(np.ones(len(up))))
    log_q = np.log(rng.dirichlet(np.ones(len(down))))
    counts[down] -= capped(rng, log_q, excess, counts[down])
    return counts
