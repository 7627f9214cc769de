"""Federated averaging: McMahan et al. 2017, Algorithm 1."""

from __future__ import annotations

from typing import Literal

from fedskew.algorithms.method import Method
from fedskew.algorithms.state import State
from fedskew.engine.batches import Cohort
from fedskew.engine.problem import Trained


class FedAvg(Method):
    """w <- sum_k n_k / n w_k: the clients' weights averaged by the examples they hold."""

    kind: Literal["fedavg"] = "fedavg"

    def step(self, s: State, cohort: Cohort, trained: Trained) -> State:
        """The state after the cohort has trained."""
        return self.average(s, cohort, trained)
