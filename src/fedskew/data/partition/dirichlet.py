"""The two Dirichlet families: a draw of labels a client (Hsu) and a draw of clients a class (Yurochkin)."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field, field_validator

from fedskew.data.partition.draws import finite, label_counts, log_dirichlet, softmax
from fedskew.data.partition.fields import Alpha, Clients, Floats, enough
from fedskew.data.partition.parts import Ints, Parts
from fedskew.data.partition.pool import Pool, apportion, in_blocks
from fedskew.errors import FedskewError
from fedskew.spec import Spec


class Dirichlet(Spec):
    """q ~ Dir(alpha p), clients of equal size, labels by q without replacement (Hsu et al. 2019, section 3).

    The prior p is the population's unless given ("uniform", or one weight a class). For ten uniform classes
    this is Dir(alpha/10, ...), not the more even Dir(alpha, ...). When a class has run out, q is renormalised
    over the others. alpha = 0 is one class a client; the surplus of a class is then dropped.
    """

    kind: Literal["dirichlet"] = "dirichlet"
    positional: ClassVar[str | None] = "alpha"
    clients: Clients = 10
    alpha: Alpha
    prior: tuple[float, ...] | Literal["uniform"] | None = None

    @field_validator("prior", mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        if not isinstance(value, str) or value == "uniform":
            return value
        try:
            return tuple(float(part) for part in value.split("/"))
        except ValueError:
            raise ValueError("it should be uniform or one weight a class, as in 0.2/0.3/0.5") from None

    @field_validator("prior")
    @classmethod
    def _weights(cls, value: Any) -> Any:
        if isinstance(value, tuple) and not (
            math.isfinite(sum(value)) and min(value, default=-1.0) >= 0 and sum(value) > 0
        ):
            raise ValueError("its weights should be finite, not negative and not all zero")
        return value

    def __call__(self, labels: ArrayLike, rng: np.random.Generator, groups: ArrayLike | None = None) -> Parts:
        """One index array a client."""
        pool = Pool(labels, rng)
        p = self._prior(pool.left)
        room = np.where(p > 0, pool.left, 0)
        total = int(room.sum())
        enough(self.kind, self.clients, total)
        size = total // self.clients if self.alpha > 0 else _one_class_size(room, self.clients)
        unit = 1 if self.alpha > 0 else size  # at alpha = 0 a client draws one class, and only that
        drawn = label_counts(rng, finite(self.alpha) * p, room // unit, size // unit, self.clients)
        return pool.deal((counts * unit for counts in drawn), size * self.clients)

    def _prior(self, left: Ints) -> Floats:
        if self.prior is None:
            p = left.astype(np.float64)
        elif self.prior == "uniform":
            p = np.ones(len(left))
        elif len(self.prior) < len(left):
            raise FedskewError(
                f"dirichlet: prior has {len(self.prior)} weights and the data has {len(left)} classes; "
                "give one weight a class"
            )
        else:
            p = np.array(self.prior[: len(left)])
        p = p / max(p.sum(), np.finfo(np.float64).tiny)
        return np.where(p < 1e-100, 0.0, p)  # never drawn anyway, and alpha p must not underflow


class DirichletByClass(Spec):
    """Each class is spread over the clients by Dir_N(alpha), so sizes are uneven (Yurochkin et al. 2019).

    Drawn anew until every client has `min_size` examples.
    """

    kind: Literal["dirichlet-by-class"] = "dirichlet-by-class"
    positional: ClassVar[str | None] = "alpha"
    clients: Clients = 10
    alpha: Alpha
    min_size: int = Field(1, ge=0)

    def __call__(self, labels: ArrayLike, rng: np.random.Generator, groups: ArrayLike | None = None) -> Parts:
        """One index array a client."""
        pool = Pool(labels, rng)
        enough(self.kind, self.clients, len(pool.order))
        concentration = np.full(self.clients, finite(self.alpha))
        tries = min(max(10, 20_000_000 // (self.clients * len(pool.left))), 1000)  # about ten seconds
        for _ in range(tries):
            shares = softmax(log_dirichlet(rng, concentration, len(pool.left)))
            counts = apportion(shares, pool.left).T  # (N, C)
            if counts.sum(axis=1).min() >= self.min_size:
                return pool.deal(in_blocks(counts), len(pool.order))
        raise FedskewError(
            f"{self}: min_size = {self.min_size}: none of {tries} draws gave so many examples to each of "
            f"{self.clients} clients; raise alpha, lower min_size or use fewer clients"
        )


def _one_class_size(room: Ints, clients: int) -> int:
    """The largest size for which the classes together hold enough pieces of one class."""
    low, high = 1, int(room.sum()) // clients
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if (room // middle).sum() >= clients else (low, middle - 1)
    return low
