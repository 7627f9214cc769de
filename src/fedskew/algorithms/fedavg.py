"""Federated averaging: McMahan et al. 2017, Algorithm 1."""

from __future__ import annotations

from typing import Literal

from fedskew.algorithms.state import State, average
from fedskew.engine.batches import Cohort
from fedskew.engine.problem import Trained
from fedskew.spec import Spec
from fedskew.tree import Tree


class FedAvg(Spec):
    """w <- sum_k n_k / n w_k: the clients' weights averaged by the examples they hold."""

    kind: Literal["fedavg"] = "fedavg"

    def init(self, w: Tree, stats: Tree) -> State:
        """Nothing but the weights."""
        return {"w": w, "stats": stats}

    def step(self, s: State, cohort: Cohort, trained: Trained) -> State:
        """The state after the cohort has trained."""
        return average(trained, cohort.n)
