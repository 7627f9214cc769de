"""From ragged clients to one index array (K, S, B) and its mask: what a round's cohort trains on, step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

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
    sizes = [_size(plan, len(part)) for part in parts]
    steps, widest = (max(size[axis] for size in sizes) for axis in (0, 1))
    index = np.zeros((len(sizes), steps, widest), np.int64)
    mask = np.zeros(index.shape, bool)
    random = np.zeros((*index.shape, 3), np.int16) if transforms.draws_for(plan.transform) else None
    for i, (k, part, size) in enumerate(zip(clients, parts, sizes, strict=True)):
        place = np.s_[i, : size[0], : size[1]]
        generator = rng.stream(seed, "batches", round_, k)
        _fill(plan, part, generator, index[place], mask[place])
        if random is not None:
            random[place] = transforms.draws(plan.transform, plan.shape, size[0] * size[1], generator).reshape(*size, 3)
    return Cohort(
        clients=tuple(clients),
        n=_on(device, [len(p) for p in parts]),
        index=_on(device, index),
        mask=_on(device, mask),
        draws=None if random is None else _on(device, random),
        keys=_on(device, [rng.torch_seed(seed, "dropout", round_, k) for k in clients]),
        lr=lr,
        momentum=plan.momentum,
        counts=_counts(plan, parts, device),
        population=population,
    )


def _on(device: torch.device, numbers: NDArray[Any] | list[int]) -> Tensor:
    """On the device, without waiting for what a GPU still has to do before it gets there."""
    here = torch.from_numpy(numbers) if isinstance(numbers, np.ndarray) else torch.tensor(numbers)
    return here.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else here.to(device)


def joined(cohorts: Sequence[Cohort]) -> Cohort:
    """Several cohorts as one, padded to the longest and widest; the learning rate is the first one's."""
    if len(cohorts) == 1:
        return cohorts[0]
    steps, widest = (max(c.index.shape[axis] for c in cohorts) for axis in (1, 2))

    def padded(a: Tensor) -> Tensor:
        if a.shape[1:3] == (steps, widest):
            return a
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


def _size(plan: Plan, n: int) -> tuple[int, int]:
    """Steps over all epochs, and examples in a step, of a client with n examples."""
    b = min(plan.batch or n, n)
    return plan.epochs * (max(n // b, 1) if plan.drop_last else math.ceil(n / b)), b


def _fill(plan: Plan, part: Index, generator: np.random.Generator, index: Index, mask: NDArray[np.bool_]) -> None:
    """One client's batches over all its epochs, (S, B)."""
    steps, an_epoch = len(index) // plan.epochs, index.size // plan.epochs
    used = min(len(part), an_epoch)
    for e in range(plan.epochs):
        order, real = index[e * steps : (e + 1) * steps], mask[e * steps : (e + 1) * steps]
        drawn = _order(plan, part, generator)[:used]
        if order.flags.c_contiguous:
            order.reshape(-1)[:used], real.reshape(-1)[:used] = drawn, True
        else:  # others of the cohort have larger batches
            padded = np.zeros(an_epoch, np.int64)
            padded[:used] = drawn
            order[:], real[:] = padded.reshape(order.shape), (np.arange(an_epoch) < used).reshape(order.shape)


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
    return _on(device, np.stack([np.bincount(labels[part], minlength=classes) for part in parts]))
