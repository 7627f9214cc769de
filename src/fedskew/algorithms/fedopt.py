"""Adaptive server optimisers: Reddi et al. 2021, Algorithm 2."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedskew import tree
from fedskew.algorithms.method import Method
from fedskew.algorithms.state import State
from fedskew.engine.batches import Cohort
from fedskew.engine.problem import Trained
from fedskew.tree import Tree

Second = Callable[[Tensor, Tensor], Tensor]  # (v, delta squared) -> the next v


class Adaptive(Method):
    """What the three share: a step of m / (sqrt(v) + tau), m the mean update remembered, v its square."""

    positional: ClassVar[str] = "lr"
    lr: float = Field(0.01, gt=0)  # of the server
    tau: float = Field(1e-3, gt=0)

    def init(self, w: Tree, stats: Tree) -> State:
        """m starts at zero, v at tau^2."""
        v = tree.apply(lambda x: torch.full_like(x, self.tau**2), w)
        return {"w": w, "stats": stats, "m": tree.zeros_like(w), "v": v}

    def stepped(self, s: State, mean: State, beta1: float, second: Second) -> State:
        """m <- beta1 m + (1 - beta1) delta; v <- second(v, delta^2); w <- w + lr m / (sqrt(v) + tau).

        As in the paper, without a correction for the first rounds.
        """
        delta = tree.sub(mean["w"], s["w"])
        m = tree.apply(lambda m, d: beta1 * m + (1 - beta1) * d, s["m"], delta)
        v = tree.apply(lambda v, d: second(v, d.square()), s["v"], delta)
        w = tree.apply(lambda w, m, v: w + self.lr * m / (v.sqrt() + self.tau), s["w"], m, v)
        return {"w": w, "stats": mean["stats"], "m": m, "v": v}


class FedAdagrad(Adaptive):
    """v <- v + delta^2, and no memory of delta."""

    kind: Literal["fedadagrad"] = "fedadagrad"
    lr: float = Field(0.1, gt=0)

    def step(self, s: State, cohort: Cohort, trained: Trained) -> State:
        """The state after the cohort has trained."""
        return self.stepped(s, self.average(s, cohort, trained), 0.0, torch.add)


class FedAdam(Adaptive):
    """v <- beta2 v + (1 - beta2) delta^2."""

    kind: Literal["fedadam"] = "fedadam"
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.99, ge=0, lt=1)

    def step(self, s: State, cohort: Cohort, trained: Trained) -> State:
        """The state after the cohort has trained."""
        mean = self.average(s, cohort, trained)
        return self.stepped(s, mean, self.beta1, lambda v, d: self.beta2 * v + (1 - self.beta2) * d)


class FedYogi(Adaptive):
    """v <- v - (1 - beta2) delta^2 sign(v - delta^2), which forgets more slowly."""

    kind: Literal["fedyogi"] = "fedyogi"
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.99, ge=0, lt=1)

    def step(self, s: State, cohort: Cohort, trained: Trained) -> State:
        """The state after the cohort has trained."""
        mean = self.average(s, cohort, trained)
        return self.stepped(s, mean, self.beta1, lambda v, d: v - (1 - self.beta2) * d * torch.sign(v - d))
