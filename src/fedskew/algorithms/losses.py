"""The loss a client minimises when it lacks classes: cross-entropy, restricted softmax, logit adjustment."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from fedskew.spec import Spec, parse


class CrossEntropy(Spec):
    """Of the logits as they are."""

    kind: Literal["cross-entropy"] = "cross-entropy"

    def __call__(self, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and offset of the logits, (K, C), for clients that hold `counts` of each class."""
        return torch.ones_like(counts), torch.zeros_like(counts)


class Restricted(Spec):
    """Logits of classes that a client lacks are scaled by alpha: it pushes them less (FedRS: Li and Zhan 2021)."""

    kind: Literal["restricted"] = "restricted"
    positional: ClassVar[str] = "alpha"
    alpha: float = Field(0.5, ge=0, le=1)

    def __call__(self, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and offset of the logits, (K, C), for clients that hold `counts` of each class."""
        return torch.where(counts > 0, torch.ones_like(counts), self.alpha), torch.zeros_like(counts)


class Adjusted(Spec):
    """Logits plus tau log p_k, p_k a client's label distribution (Menon et al. 2021, the logit-adjusted loss).

    Zhang et al. 2022 (FedLC) brought it to clients. One example more is counted of every class: zero has no logarithm.
    """

    kind: Literal["adjusted"] = "adjusted"
    positional: ClassVar[str] = "tau"
    tau: float = Field(1.0, ge=0)

    def __call__(self, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and offset of the logits, (K, C), for clients that hold `counts` of each class."""
        p = (counts + 1) / (counts + 1).sum(dim=1, keepdim=True)
        return torch.ones_like(counts), self.tau * p.log()


AnyLoss = CrossEntropy | Restricted | Adjusted
KINDS: tuple[type[AnyLoss], ...] = (CrossEntropy, Restricted, Adjusted)


def _parsed(value: object) -> object:
    return parse("loss", value, KINDS) if isinstance(value, str) else value


Loss = Annotated[Annotated[AnyLoss, Field(discriminator="kind")], BeforeValidator(_parsed)]
