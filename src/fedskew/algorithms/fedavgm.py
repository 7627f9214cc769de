"""Federated averaging with server momentum: Hsu et al. 2019, section 4.2."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from fedskew import tree
from fedskew.algorithms.method import Method
from fedskew.algorithms.state import State
from fedskew.engine.batches import Cohort
from fedskew.engine.problem import Trained
from fedskew.tree import Tree


class FedAvgM(Method):
    """v <- beta v + delta with delta = w - average; w <- w - v, or Nesterov's w <- w - (delta + beta v).

    The server's learning rate is 1 and there is no (1 - beta) damping. Batch-norm statistics are averaged and get no
    momentum: a running variance could become negative.
    """

    kind: Literal["fedavgm"] = "fedavgm"
    positional: ClassVar[str] = "beta"
    beta: float = Field(0.9, ge=0, lt=1)
    plain: bool = False  # Hsu's experiments use Nesterov's form

    def init(self, w: Tree, stats: Tree) -> State:
        """The momentum starts at zero."""
        return {"w": w, "stats": stats, "v": tree.zeros_like(w)}

    def step(self, s: State, cohort: Cohort, trained: Trained) -> State:
        """The state after the cohort has trained."""
        mean = self.average(s, cohort, trained)
        delta = tree.sub(s["w"], mean["w"])
        v = tree.add(delta, s["v"], self.beta)
        move = v if self.plain else tree.add(delta, v, self.beta)
        return {"w": tree.sub(s["w"], move), "stats": mean["stats"], "v": v}
