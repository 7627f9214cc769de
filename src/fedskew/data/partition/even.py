"""Clients whose labels are those of the population: equal sizes, or sizes from a Dirichlet."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field

from fedskew.data.partition.draws import finite, log_dirichlet, softmax
from fedskew.data.partition.fields import Alpha, Clients, as_labels, enough
from fedskew.data.partition.parts import Parts
from fedskew.data.partition.pool import apportion, near_equal
from fedskew.errors import FedskewError
from fedskew.spec import Spec


class Iid(Spec):
    """A random deal; sizes differ by at most one (McMahan et al. 2017; Zhao et al. 2018, section 2.1)."""

    kind: Literal["iid"] = "iid"
    clients: Clients = 10

    def __call__(self, labels: ArrayLike, rng: np.random.Generator, groups: ArrayLike | None = None) -> Parts:
        """One index array a client."""
        n = len(as_labels(labels))
        enough(self.kind, self.clients, n)
        return Parts(rng.permutation(n), near_equal(n, self.clients))


class Quantity(Spec):
    """Sizes ~ Dir_N(alpha), labels as in the population; `min_size` examples a client are set apart first."""

    kind: Literal["quantity"] = "quantity"
    positional: ClassVar[str | None] = "alpha"
    clients: Clients = 10
    alpha: Alpha
    min_size: int = Field(1, ge=0)

    def __call__(self, labels: ArrayLike, rng: np.random.Generator, groups: ArrayLike | None = None) -> Parts:
        """One index array a client."""
        n = len(as_labels(labels))
        enough(self.kind, self.clients, n)
        apart = self.clients * self.min_size
        if apart > n:
            raise FedskewError(
                f"quantity: min_size = {self.min_size}: {self.clients} clients need {apart} examples and there "
                f"are {n}; use at most {n // self.clients}"
            )
        shares = softmax(log_dirichlet(rng, np.full(self.clients, finite(self.alpha)), 1))
        sizes = self.min_size + apportion(shares, np.array([n - apart]))[0]
        return Parts(rng.permutation(n), sizes)
