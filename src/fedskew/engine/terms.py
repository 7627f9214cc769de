"""What a method may add to a client's plain SGD: the `local` seam. Every tensor carries the client axis (K, ...)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, softplus

from fedskew import tree
from fedskew.tree import Tree


@dataclass(frozen=True)
class Drift:
    """Added to every gradient: pull (w - w0) + shift, with w0 the weights that were sent."""

    pull: Tensor  # (K,) FedProx's mu, FedDyn's alpha
    shift: Tree  # (K, ...) SCAFFOLD's c - c_k; empty: none


@dataclass(frozen=True)
class Logits:
    """The cross-entropy of scale z + offset, with smoothed labels, in place of that of the logits z."""

    scale: Tensor  # (K, C)
    offset: Tensor  # (K, C)
    smoothing: Tensor  # (K,)

    def part(self, some: slice) -> Logits:
        """Those of some clients."""
        return Logits(self.scale[some], self.offset[some], self.smoothing[some])


@dataclass(frozen=True)
class Contrast:
    """MOON's term: features near those of the weights that were sent, far from the client's own last ones."""

    previous: Tree  # (K, ...)
    mu: Tensor  # (K,)
    temperature: Tensor  # (K,)


@dataclass(frozen=True)
class Terms:
    """Nothing, by default."""

    drift: Drift | None = None
    logits: Logits | None = None
    contrast: Contrast | None = None

    @property
    def shape(self) -> tuple[bool, bool, bool]:
        """Which parts are there: a program is recorded, and runs are joined, for cohorts alike in this."""
        return self.drift is not None, self.logits is not None, self.contrast is not None

    def part(self, clients: slice) -> Terms:
        """Those of some clients."""
        d, z, c = self.drift, self.logits, self.contrast
        return Terms(
            d and Drift(d.pull[clients], tree.part(d.shift, clients) if d.shift else {}),
            z and z.part(clients),
            c and Contrast(tree.part(c.previous, clients), c.mu[clients], c.temperature[clients]),
        )


PLAIN = Terms()


def smoothed(z: Tensor, y: Tensor, scale: Tensor, offset: Tensor, smoothing: Tensor) -> Tensor:
    """Each example's loss for logits (..., C) and labels (...); the others broadcast against them."""
    log_p = torch.log_softmax(z * scale + offset, dim=-1)
    label = -log_p.gather(-1, y.unsqueeze(-1)).squeeze(-1)
    return (1 - smoothing) * label - smoothing * log_p.mean(dim=-1)


def contrast(features: Iterable[Tensor], temperature: Tensor) -> Tensor:
    """Li, He and Song 2021, the model-contrastive loss, (K, B): -log of sent's share in the softmax over both cosines.

    `features` (K, B, ...) are those of the weights in training, of the weights sent and of the client's previous ones.
    """
    z, *others = (a.flatten(2) for a in features)
    near, far = (cosine_similarity(z, other, dim=2) for other in others)
    return softplus((far - near) / temperature.unsqueeze(1))


def rows(sizes: Sequence[int]) -> Iterator[slice]:
    """Where each of several cohorts lies in their joined client axis."""
    at = 0
    for size in sizes:
        yield slice(at, at + size)
        at += size
