"""How far clients are from the population, and federated weights from centralised ones. Numpy until tensors come."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedskew.data.partition.parts import Parts
from fedskew.errors import FedskewError

if TYPE_CHECKING:
    from torch import Tensor

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LAST = 5  # evaluations that make a run's accuracy
BLOCK = 1 << 17  # numbers at once, so that a million clients need no second copy of their indices or counts


def counts(labels: ArrayLike, parts: Sequence[Ints], classes: int) -> Ints:
    """How many examples of each class each client holds: (N, C)."""
    table = np.zeros((len(parts), classes), np.int64)
    first = 0
    for block in _counted(np.asarray(labels), Parts.of(parts), classes):
        table[first : first + len(block)] = block
        first += len(block)
    return table


def population(labels: ArrayLike, parts: Sequence[Ints], classes: int) -> Ints:
    """How many examples of each class all clients hold together: (C,), without every client's own counts."""
    blocks = _counted(np.asarray(labels), Parts.of(parts), classes)
    return sum((block.sum(axis=0) for block in blocks), start=np.zeros(classes, np.int64))


def _counted(y: NDArray[Any], parts: Parts, classes: int) -> Iterator[Ints]:
    """Blocks (b, C) of counts, client after client."""
    ends, rows = parts.offsets, max(1, BLOCK // max(classes, 1))
    first = 0
    while first < len(parts):
        # as many clients as fit a block, at least one
        fit = int(np.searchsorted(ends, ends[first] + BLOCK, "right")) - 1
        last = max(min(fit, first + rows), first + 1)
        cell = np.repeat(np.arange(last - first) * classes, np.diff(ends[first : last + 1]))
        cell += y[parts.flat[ends[first] : ends[last]]]
        yield np.bincount(cell, minlength=(last - first) * classes).reshape(-1, classes)
        first = last


def emd(counts: Ints, population: ArrayLike | None = None) -> Floats:
    """Earth mover's distance of each client, sum_i |p_k(i) - p(i)| (Zhao et al. 2018, Remark 3.4): (N,).

    The population is all the clients' examples unless given, as counts or as a distribution. A client without
    examples has no distribution: its distance is NaN, here and below, and means leave it out.
    """
    n = counts.sum(axis=1)
    whole = counts.sum(axis=0) if population is None else np.asarray(population)
    if whole.dtype.kind in "iu" and float(n.max(initial=0)) * float(whole.sum(dtype=np.float64)) < 2**61:
        # one rounding at the end, so that ten one-class clients are at 1.8 and not beside it
        total = int(whole.sum())
        distance = np.abs(counts * total - n[:, None] * whole).sum(axis=1) / np.maximum(n * total, 1)
    else:
        distance = np.abs(_shares(counts) - _shares(whole[None])).sum(axis=1)
    return np.where(n > 0, distance, np.nan)


def jensen_shannon(counts: Ints, population: ArrayLike | None = None) -> Floats:
    """Jensen-Shannon divergence of each client from the population in bits, 0 to 1: (N,)."""
    p, q = _pair(counts, population)
    middle = (p + q) / 2
    return np.maximum(_entropy(middle) - (_entropy(p) + _entropy(q)) / 2, 0.0) / math.log(2)


def hellinger(counts: Ints, population: ArrayLike | None = None) -> Floats:
    """Hellinger distance of each client from the population, 0 to 1: (N,)."""
    p, q = _pair(counts, population)
    squares: Floats = np.square(np.sqrt(p) - np.sqrt(q)).sum(axis=1)
    return np.sqrt(squares / 2)


def effective_classes(counts: Ints) -> Floats:
    """exp(entropy) of each client's labels: 1 for one class, C for all classes alike: (N,)."""
    return np.exp(_entropy(_shares(counts)))


def skew(counts: Ints) -> dict[str, Any]:
    """What a population is like: EMD (mean, weighted by size, max), other distances, sizes, effective classes."""
    n = counts.sum(axis=1)
    if not n.any():
        raise FedskewError("no client holds an example: at least one is needed to measure skew")
    held = counts[n > 0]
    distance = emd(held)
    return {
        "emd": {
            "mean": _mean(distance),
            "weighted": math.fsum(distance * n[n > 0]) / math.fsum(n),
            "max": float(distance.max()),
        },
        "jensen_shannon": _mean(jensen_shannon(held)),
        "hellinger": _mean(hellinger(held)),
        "sizes": {"min": int(n.min()), "mean": _mean(n), "max": int(n.max())},
        "effective_classes": _mean(effective_classes(held)),
    }


def divergence(w: Mapping[str, Tensor], reference: Mapping[str, Tensor]) -> dict[str, Any]:
    """Weight divergence in total and by layer, `conv1` for `conv1.weight` and `conv1.bias` together.

    "relative" is ||w - reference|| / ||reference|| (Zhao et al. 2018, Eq. 1), infinite where the reference is
    zero and w is not; "rms" is the root of the mean squared difference (Lahoti et al., Eq. 1).
    """
    if w.keys() != reference.keys():
        odd = ", ".join(sorted(w.keys() ^ reference.keys()))
        raise FedskewError(f"weights of two models cannot be compared: only one of them has {odd}")
    import torch

    # two sums a parameter, brought to the host at once
    sums = torch.stack(
        [
            torch.stack([(w[k].double() - r.double()).square().sum(), r.double().square().sum()])
            for k, r in reference.items()
        ]
    ).tolist()
    layers: dict[str, list[float]] = {}
    for (key, r), (difference, norm) in zip(reference.items(), sums, strict=True):
        layer = layers.setdefault(key.rpartition(".")[0] or key, [0.0, 0.0, 0.0])
        for i, value in enumerate((difference, norm, float(r.numel()))):
            layer[i] += value
    total = [math.fsum(column) for column in zip(*layers.values(), strict=True)]
    return {
        name: {"total": formula(*total), "layers": {layer: formula(*s) for layer, s in layers.items()}}
        for name, formula in (("relative", _relative), ("rms", _rms))
    }


def bound(
    previous: float,
    lr: float,
    steps: int,
    sizes: ArrayLike,
    client_distributions: ArrayLike,
    population: ArrayLike,
    lipschitz: ArrayLike,
    gradient_norms: ArrayLike,
) -> float:
    """The right side of Proposition 3.1 (Zhao et al. 2018, Eq. 2): no divergence after a round is larger.

    previous: ||w_f - w_c|| after the round before; steps: T; sizes (K,); client_distributions (K, C);
    population (C,); lipschitz (C,): lambda of each class; gradient_norms (T,): g_max at the centralised weights
    before each step of the round. The proof needs g_max(w_{mT-1-j}); the statement prints k for j there. It
    sums from j = 1 because the last step adds nothing when the clients' mixture is the population; where it is
    not (clients were sampled), their distance adds the term j = 0, which the appendix keeps for all.
    """
    n = np.asarray(sizes, np.float64) / np.sum(sizes)
    p_k, p = np.asarray(client_distributions, np.float64), np.asarray(population, np.float64)
    g = np.asarray(gradient_norms, np.float64)
    if g.shape != (steps,):
        raise FedskewError(f"gradient_norms has shape {g.shape}: one for each of the {steps} steps is needed")
    a = 1 + lr * (p_k @ np.asarray(lipschitz, np.float64))  # (K,)
    powers = a[:, None] ** np.arange(1, steps)  # (K, T - 1)
    distance = np.abs(p_k - p).sum(axis=1)
    drift = a**steps * previous + lr * distance * (powers @ g[::-1][1:])
    return float(n @ drift + lr * np.abs(n @ p_k - p).sum() * g[-1])


def settled(accuracies: Sequence[float]) -> float:
    """The mean of the last evaluations: one round of one-class clients is noisy."""
    return _mean(np.asarray(accuracies[-LAST:]))


def _shares(table: NDArray[Any]) -> Floats:
    """Each row as a distribution; a row of zeros becomes NaN."""
    total = table.sum(axis=1, keepdims=True, dtype=np.float64)
    shares: Floats = np.divide(table, total, out=np.full(table.shape, np.nan), where=total > 0)
    return shares


def _pair(counts: Ints, population: ArrayLike | None) -> tuple[Floats, Floats]:
    whole = counts.sum(axis=0) if population is None else np.asarray(population)
    return _shares(counts), _shares(whole[None])


def _entropy(p: Floats) -> Floats:
    logs = np.log(p, out=np.zeros_like(p), where=p > 0)  # 0 log 0 is 0
    entropy: Floats = -(p * logs).sum(axis=1)
    return entropy


def _mean(values: NDArray[Any]) -> float:
    return math.fsum(values) / len(values)


def _relative(difference: float, norm: float, size: float) -> float:
    if norm == 0:
        return 0.0 if difference == 0 else math.inf
    return math.sqrt(difference / norm)


def _rms(difference: float, norm: float, size: float) -> float:
    return math.sqrt(difference / size)
