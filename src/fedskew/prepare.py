"""The prepare seam: what changes the data or the starting weights once, before the first round. Numpy only.

Zhao et al. 2018, section 4.2: a holdout H is split from the training set before clients get the rest, D. The shared set
G is drawn from H, uniform over classes, with |G| = beta |D|; each client merges its own random alpha of G with its
private data, and federated training may start from weights that were trained on G.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedskew import measure
from fedskew.errors import FedskewError
from fedskew.spec import Spec, parse

Index = NDArray[np.int64]

HOLDOUT = 0.2  # Zhao: 10,000 of 50,000


class Share(Spec):
    """Data sharing: `beta=0.1,alpha=0.5`."""

    kind: Literal["share"] = "share"
    beta: float = Field(gt=0, le=1)  # |G| / |D|
    alpha: float = Field(default=1.0, gt=0, le=1)  # the part of G that each client gets

    def draw(self, labels: Index, clients_hold: int, classes: int, generator: np.random.Generator) -> Index:
        """G as positions in the holdout, whose labels these are; in ascending order."""
        wanted = round(self.beta * clients_hold)
        if wanted < classes or wanted > len(labels):
            raise FedskewError(
                f"beta = {self.beta:g} of {clients_hold} examples is {wanted}, but a shared set takes {classes} "
                f"(one a class) to {len(labels)} (the holdout); change beta or holdout"
            )
        return _uniform(labels, wanted, classes, generator)

    def merged(self, part: Index, shared: Index, generator: np.random.Generator) -> Index:
        """A client's private data and, after them, its own random alpha of G."""
        return np.concatenate([part, generator.choice(shared, self.received(len(shared)), replace=False)])

    def received(self, shared: int) -> int:
        """How many examples of G a client gets."""
        return max(1, round(self.alpha * shared))


class WarmUp(Spec):
    """Training on one machine first: `0.6` (to an accuracy), `rounds=5` (so many passes), `0.6,fraction=0.1`.

    On G or, with `fraction` (Lahoti et al., section 5.5), on a random part of the whole training set.
    """

    kind: Literal["warm-up"] = "warm-up"
    positional: ClassVar[str] = "until"
    until: float | None = Field(None, gt=0, le=1)
    rounds: int | None = Field(None, ge=1)
    fraction: float | None = Field(None, gt=0, le=1)
    most: int = Field(100, ge=1)  # passes, if the accuracy is not reached

    @model_validator(mode="after")
    def _one_end(self) -> WarmUp:
        if (self.until is None) == (self.rounds is None):
            raise FedskewError("warm-up ends at an accuracy (0.6) or after passes (rounds=5); give one of them")
        return self

    def over(self, passes: int, accuracy: float | None) -> bool:
        """Whether to stop after so many passes with this accuracy."""
        if self.until is None:
            return passes >= (self.rounds or 0)
        return passes >= self.most or (accuracy is not None and accuracy >= self.until)


def parse_share(value: Any) -> Any:
    """The spec of `beta=0.1,alpha=0.5`."""
    return parse("share", f"share,{value.removeprefix('share,')}", (Share,)) if isinstance(value, str) else value


def parse_warm_up(value: Any) -> Any:
    """The spec of `0.6`, `rounds=5` or `0.6,fraction=0.1`."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        return value
    value = value.removeprefix("warm-up").lstrip(":,")
    return parse("warm-up", f"warm-up{',' if '=' in value.split(',')[0] else ':'}{value}", (WarmUp,))


def remedy(share: Share | None, warm_up: WarmUp | None, start: str) -> str:
    """What is done before the first round, in short: "share beta=0.1,alpha=0.5, warm-up 0.6"."""
    shared = str(share).replace(",", " ", 1) if share else ""
    warmed = str(warm_up).removeprefix("warm-up")[1:] if warm_up else ""
    return ", ".join(part for part in (shared, warmed and f"warm-up {warmed}", start and f"start {start}") if part)


def held_out(holdout: float | None, share: Share | None) -> float:
    """The part of the training set that no client gets: as said, else a fifth if data is shared, else nothing."""
    return holdout if holdout is not None else HOLDOUT if share else 0.0


def hold_out(labels: Index, fraction: float, generator: np.random.Generator) -> tuple[Index, Index]:
    """(kept, held out) as ascending positions; every class gives the same share, to within one example."""
    order = generator.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]  # class by class, shuffled inside
    wanted = round(fraction * len(labels))
    # the middle of each of `wanted` equal stretches: as many of a class as its length allows
    picked = ((np.arange(wanted) + 0.5) * len(labels) / max(wanted, 1)).astype(np.int64)
    held = np.zeros(len(labels), bool)
    held[order[picked]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)


def mixed_emd(counts: Index, shared: Index, received: int, population: Index | None = None) -> NDArray[np.float64]:
    """The EMD of each client (N,) after it got `received` examples distributed as `shared` (C,): what to expect.

    From label counts (N, C) alone; the population stays that of the private data, by default of these clients.
    """
    whole = counts.sum(axis=0) if population is None else population
    mix = counts + received * shared / shared.sum()
    distance: NDArray[np.float64] = np.abs(mix / mix.sum(axis=1, keepdims=True) - whole / whole.sum()).sum(axis=1)
    return distance


def _uniform(labels: Index, wanted: int, classes: int, generator: np.random.Generator) -> Index:
    """As even over classes as they allow: a class that runs out gives all it has, the others the same to within one."""
    have = np.bincount(labels, minlength=classes)
    level = bisect_right(range(have.max() + 1), wanted, key=lambda level: np.minimum(have, level).sum()) - 1
    quota = np.minimum(have, level)
    quota[generator.permutation(np.flatnonzero(have > level))[: wanted - quota.sum()]] += 1
    chosen = [generator.choice(np.flatnonzero(labels == c), quota[c], replace=False) for c in range(classes)]
    return np.sort(np.concatenate(chosen))


def realised_emd(labels: Index, parts: list[Index], population: Index) -> NDArray[np.float64]:
    """The EMD of clients that hold these examples, shared ones included, from the private data's label counts (C,)."""
    return measure.emd(measure.counts(labels, parts, len(population)), population)
