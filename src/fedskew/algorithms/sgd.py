"""The matched baseline of Zhao et al. 2018, section 2.1: centralised SGD with a batch K times larger."""

from __future__ import annotations

from typing import ClassVar, Literal

from fedskew import tree
from fedskew.algorithms.state import State
from fedskew.engine.batches import Cohort
from fedskew.engine.problem import Trained
from fedskew.spec import Spec
from fedskew.tree import Tree


class SGD(Spec):
    """All clients' data on one machine: a "round" is as many examples as a federated round, in batches of K x B.

    The experiment makes a cohort of one client that holds everything, so there is nothing to average.
    """

    kind: Literal["sgd"] = "sgd"
    traffic: ClassVar[int] = 0

    def init(self, w: Tree, stats: Tree) -> State:
        """Nothing but the weights."""
        return {"w": w, "stats": stats}

    def step(self, s: State, cohort: Cohort, trained: Trained) -> State:
        """The state after one more round."""
        return {"w": tree.one(trained.w, 0), "stats": tree.one(trained.stats, 0)}
