"""FedProx: Li et al. 2020, Algorithm 2."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field

from fedskew.algorithms.method import Method
from fedskew.algorithms.state import State
from fedskew.engine.batches import Cohort
from fedskew.engine.problem import Trained
from fedskew.engine.terms import Drift


class FedProx(Method):
    """Clients minimise F_k(w) + mu / 2 ||w - w_t||^2 (eq. 2); the server averages."""

    kind: Literal["fedprox"] = "fedprox"
    positional: ClassVar[str] = "mu"
    mu: float = Field(0.01, ge=0)

    def drift(self, s: State, cohort: Cohort) -> Drift:
        """mu (w - w_t)."""
        return Drift(cohort.n.new_full(cohort.n.shape, self.mu, dtype=torch.float64), {})

    def step(self, s: State, cohort: Cohort, trained: Trained) -> State:
        """The state after the cohort has trained."""
        return self.average(s, cohort, trained)
