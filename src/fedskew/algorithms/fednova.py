"""FedNova: Wang et al. 2020, normalised averaging."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from torch import Tensor

from fedskew import tree
from fedskew.algorithms.method import Method
from fedskew.algorithms.state import State
from fedskew.engine.batches import Cohort
from fedskew.engine.problem import Trained


class FedNova(Method):
    """Updates are divided by their number of local steps before they are averaged, then scaled by the mean number."""

    kind: Literal["fednova"] = "fednova"

    def step(self, s: State, cohort: Cohort, trained: Trained) -> State:
        """w <- w + tau_eff sum_k p_k (w_k - w) / ||a_k||_1 with tau_eff = sum_k p_k ||a_k||_1."""
        a = _steps(cohort.steps.double(), cohort.momentum)
        effective = (cohort.n.double() / cohort.n.sum() * a).sum()
        update = tree.scaled(tree.apply(lambda w_k, w: w_k - w, trained.w, s["w"]), effective / a)
        normalised = tree.apply(lambda w, d: w + d, s["w"], update)
        return self.average(s, cohort, replace(trained, w=normalised))


def _steps(tau: Tensor, rho: float) -> Tensor:
    """||a_k||_1: how often a gradient enters the weights, over tau steps with local momentum rho."""
    return (tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho)
