"""SCAFFOLD: Karimireddy et al. 2020, Algorithm 1 with option II."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from fedskew import tree
from fedskew.algorithms.method import Method
from fedskew.algorithms.state import Keep, State, recall, remember
from fedskew.engine.batches import Cohort
from fedskew.engine.problem import Trained
from fedskew.engine.terms import Drift
from fedskew.tree import Tree


class Scaffold(Method):
    """Clients step along g_k - c_k + c; c_k estimates a client's own gradient and c is the mean of all c_k.

    The paper counts clients alike; here they count by their examples, as in FedAvg, so that both have the same optimum.
    With local momentum or weight decay c_k is the mean of what the client's steps were made of, not of its gradients.
    """

    kind: Literal["scaffold"] = "scaffold"
    positional: ClassVar[str] = "lr"
    traffic: ClassVar[int] = 2  # c comes with the weights, and the change of c_k goes with the update
    lr: float = Field(1.0, gt=0)  # of the server
    keep: Keep = "device"

    def init(self, w: Tree, stats: Tree) -> State:
        """Every control variate starts at zero."""
        return {"w": w, "stats": stats, "c": tree.zeros_like(w)}

    def drift(self, s: State, cohort: Cohort) -> Drift:
        """c - c_k."""
        mine = recall(s, "c", cohort.clients, tree.zeros_like(s["c"]))
        return Drift(cohort.n.double() * 0, tree.apply(lambda c, c_k: c - c_k, s["c"], mine))

    def step(self, s: State, cohort: Cohort, trained: Trained) -> State:
        """Option II: c_k <- c_k - c + (w - w_k) / (steps lr); c moves by the clients' share of all examples."""
        mine = recall(s, "c", cohort.clients, tree.zeros_like(s["c"]))
        a_step = 1 / (cohort.steps.double() * cohort.lr)
        walked = tree.scaled(tree.apply(lambda w, w_k: w - w_k, s["w"], trained.w), a_step)
        new = tree.apply(lambda c_k, c, g: c_k - c + g, mine, s["c"], walked)
        change = tree.summed(tree.scaled(tree.sub(new, mine), cohort.n.double() / cohort.population[1]))
        mean = self.average(s, cohort, trained)
        w = tree.add(s["w"], tree.sub(mean["w"], s["w"]), self.lr)
        memory = remember(s, "c", cohort.clients, new, self.keep)
        return {"w": w, "stats": mean["stats"], "c": tree.add(s["c"], change)} | memory
