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


class FedAdagrad(Method):
    """v <- v + delta^2; w <- w + lr delta / (sqrt(v) + tau), delta the mean update."""

    kind: Literal["fedadagrad"] = "fedadagrad"
    positional: ClassVar[str] = "lr"
    lr: float = Field(0.1, gt=0)  # of the server
    tau: float = Field(1e-3, gt=0)

    def init(self, w: Tree, stats: Tree) -> State:
        """v starts at tau^2."""
        return _init(w, stats, self.tau)

    def step(self, s: State, cohort: Cohort, trained: Trained) -> State:
        """The state after the cohort has trained."""
        return _step(s, self.average(s, cohort, trained), self.lr, 0.0, self.tau, torch.add)


class FedAdam(Method):
    """m <- beta1 m + (1 - beta1) delta; v <- beta2 v + (1 - beta2) delta^2; w <- w + lr m / (sqrt(v) + tau)."""

    kind: Literal["fedadam"] = "fedadam"
    positional: ClassVar[str] = "lr"
    lr: float = Field(0.01, gt=0)  # of the server
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.99, ge=0, lt=1)
    tau: float = Field(1e-3, gt=0)

    def init(self, w: Tree, stats: Tree) -> State:
        """m starts at zero, v at tau^2."""
        return _init(w, stats, self.tau)

    def step(self, s: State, cohort: Cohort, trained: Trained) -> State:
        """The state after the cohort has trained; as in the paper, without a correction for the first rounds."""
        mean = self.average(s, cohort, trained)
        return _step(s, mean, self.lr, self.beta1, self.tau, lambda v, d: self.beta2 * v + (1 - self.beta2) * d)


class FedYogi(Method):
    """As FedAdam, but v <- v - (1 - beta2) delta^2 sign(v - delta^2), which forgets more slowly."""

    kind: Literal["fedyogi"] = "fedyogi"
    positional: ClassVar[str] = "lr"
    lr: float = Field(0.01, gt=0)  # of the server
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.99, ge=0, lt=1)
    tau: float = Field(1e-3, gt=0)

    def init(self, w: Tree, stats: Tree) -> State:
        """m starts at zero, v at tau^2."""
        return _init(w, stats, self.tau)

    def step(self, s: State, cohort: Cohort, trained: Trained) -> State:
        """The state after the cohort has trained."""
        mean = self.average(s, cohort, trained)
        second: Second = lambda v, d: v - (1 - self.beta2) * d * torch.sign(v - d)  # noqa: E731
        return _step(s, mean, self.lr, self.beta1, self.tau, second)


def _init(w: Tree, stats: Tree, tau: float) -> State:
    v = tree.apply(lambda x: torch.full_like(x, tau**2), w)
    return {"w": w, "stats": stats, "m": tree.zeros_like(w), "v": v}


def _step(s: State, mean: State, lr: float, beta1: float, tau: float, second: Second) -> State:
    delta = tree.sub(mean["w"], s["w"])
    m = tree.apply(lambda m, d: beta1 * m + (1 - beta1) * d, s["m"], delta)
    v = tree.apply(lambda v, d: second(v, d.square()), s["v"], delta)
    w = tree.apply(lambda w, m, v: w + lr * m / (v.sqrt() + tau), s["w"], m, v)
    return {"w": w, "stats": mean["stats"], "m": m, "v": v}
