"""From ragged clients to one index array (K, S, B) and its mask: what a round's cohort trains on, step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedskew import rng
from fedskew.data import transforms
from fedskew.data.dataset import Transform

Index = NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """How a client goes through its examples in a round.

    `drop_last` drops the short batch at the end of an epoch. The default keeps it, as McMahan's pseudo-code does: every
    example is seen once an epoch, and a client with fewer examples than a batch still trains. When dropping, such a
    client keeps its only batch.
    """

    epochs: int
    batch: int | None  # None: the client's whole data as one batch
    drop_last: bool
    transform: Transform
    shape: tuple[int, ...]  # of an example before the transform
    balance: NDArray[np.int64] | None = None  # labels: draw every class that a client holds equally often
    momentum: float = 0.0  # of the local SGD, for methods that must know it
    counted: tuple[NDArray[np.int64], int] | None = None  # labels and classes, for methods that ask for label counts


@dataclass(frozen=True)
class Cohort:
    """The clients of one round and everything random they will meet."""

    clients: tuple[int, ...]  # their numbers in the population
    n: Tensor  # (K,) examples each client holds
    index: Tensor  # (K, S, B) into the training set; where the mask is False, anything
    mask: Tensor  # (K, S, B)
    draws: Tensor | None  # (K, S, B, 3), see data/transforms.py
    keys: Tensor  # (K,) for dropout, see engine/seeded.py; step s uses key + s
    lr: float
    momentum: float = 0.0
    counts: Tensor | None = None  # (K, C) labels that each client holds
    population: tuple[int, int] = (1, 1)  # all clients, and all the examples they hold

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def steps(self) -> Tensor:
        """(K,) local steps of each client."""
        return self.mask.any(dim=2).sum(dim=1)


def cohort(
    plan: Plan,
    clients: Sequence[int],
    parts: Sequence[Index],
    lr: float,
    seed: int,
    round_: int,
    device: torch.device,
    population: tuple[int, int] = (1, 1),
) -> Cohort:
    """The batches of `clients`, who hold `parts`, in one round; each client has a stream of its own."""
    steps = [_steps(plan, part, rng.stream(seed, "batches", round_, k)) for k, part in zip(clients, parts, strict=True)]
    longest = max(len(index) for index, _, _ in steps)
    widest = max(index.shape[1] for index, _, _ in steps)
    index = np.zeros((len(steps), longest, widest), np.int64)
    mask = np.zeros(index.shape, bool)
    random = None if steps[0][2] is None else np.zeros((*index.shape, 3), np.int16)
    for k, (chosen, real, drawn) in enumerate(steps):
        place = np.s_[k, : chosen.shape[0], : chosen.shape[1]]
        index[place], mask[place] = chosen, real
        if random is not None:
            random[place] = drawn
    return Cohort(
        clients=tuple(clients),
        n=torch.tensor([len(p) for p in parts], device=device),
        index=torch.from_numpy(index).to(device),
        mask=torch.from_numpy(mask).to(device),
        draws=None if random is None else torch.from_numpy(random).to(device),
        keys=torch.tensor([rng.torch_seed(seed, "dropout", round_, k) for k in clients], device=device),
        lr=lr,
        momentum=plan.momentum,
        counts=_counts(plan, parts, device),
        population=population,
    )


def joined(cohorts: Sequence[Cohort]) -> Cohort:
    """Several cohorts as one, padded to the longest and widest; the learning rate is the first one's."""
    if len(cohorts) == 1:
        return cohorts[0]
    steps, widest = (max(c.index.shape[axis] for c in cohorts) for axis in (1, 2))

    def padded(a: Tensor) -> Tensor:
        room = a.new_zeros(a.shape[0], steps, widest, *a.shape[3:])
        room[:, : a.shape[1], : a.shape[2]] = a
        return room

    draws = [c.draws for c in cohorts if c.draws is not None]
    return Cohort(
        clients=tuple(k for c in cohorts for k in c.clients),
        n=torch.cat([c.n for c in cohorts]),
        index=torch.cat([padded(c.index) for c in cohorts]),
        mask=torch.cat([padded(c.mask) for c in cohorts]),
        draws=torch.cat([padded(d) for d in draws]) if draws else None,
        keys=torch.cat([c.keys for c in cohorts]),
        lr=cohorts[0].lr,
    )


def parted(cohort: Cohort, at: int) -> tuple[Cohort, Cohort]:
    """The first clients and the others."""
    return tuple(  # type: ignore[return-value]
        replace(
            cohort,
            clients=cohort.clients[part],
            n=cohort.n[part],
            index=cohort.index[part],
            mask=cohort.mask[part],
            draws=None if cohort.draws is None else cohort.draws[part],
            keys=cohort.keys[part],
            counts=None if cohort.counts is None else cohort.counts[part],
        )
        for part in (slice(None, at), slice(at, None))
    )


def _steps(
    plan: Plan, part: Index, generator: np.random.Generator
) -> tuple[Index, NDArray[np.bool_], NDArray[np.int16] | None]:
    """One client's batches over all its epochs: index (S, B), mask (S, B), draws (S, B, 3)."""
    n = len(part)
    b = min(plan.batch or n, n)
    a_epoch = max(n // b, 1) if plan.drop_last else math.ceil(n / b)
    order = np.zeros((plan.epochs, a_epoch * b), np.int64)
    real = np.zeros(order.shape, bool)
    used = min(n, a_epoch * b)
    for e in range(plan.epochs):
        order[e, :used] = _order(plan, part, generator)[:used]
        real[e, :used] = True
    index = order.reshape(-1, b)
    drawn = transforms.draws(plan.transform, plan.shape, index.size, generator)
    return index, real.reshape(-1, b), None if drawn is None else drawn.reshape(*index.shape, 3)


def _order(plan: Plan, part: Index, generator: np.random.Generator) -> Index:
    """An epoch's examples in order: a permutation, or draws with replacement in which a client's classes are equal."""
    if plan.balance is None:
        return generator.permutation(part)
    labels = plan.balance[part]
    chance = 1 / np.bincount(labels)[labels]
    return generator.choice(part, len(part), p=chance / chance.sum())


def _counts(plan: Plan, parts: Sequence[Index], device: torch.device) -> Tensor | None:
    if plan.counted is None:
        return None
    labels, classes = plan.counted
    return torch.from_numpy(np.stack([np.bincount(labels[part], minlength=classes) for part in parts])).to(device)
