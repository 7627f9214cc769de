"""FedDyn: Acar et al. 2021, Algorithm 1."""

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


class FedDyn(Method):
    """Clients minimise F_k(w) - <h_k, w> + alpha / 2 ||w - w_t||^2, where h_k becomes the client's gradient.

    The paper counts clients alike. Here a client's objective is weighted by its examples: F_k times o = n_k N / n,
    which for its SGD is the same as h_k / o and alpha / o.
    """

    kind: Literal["feddyn"] = "feddyn"
    positional: ClassVar[str] = "alpha"
    alpha: float = Field(0.01, gt=0)
    keep: Keep = "device"

    def init(self, w: Tree, stats: Tree) -> State:
        """h and every h_k start at zero."""
        return {"w": w, "stats": stats, "h": tree.zeros_like(w)}

    def drift(self, s: State, cohort: Cohort) -> Drift:
        """-h_k + alpha (w - w_t), both divided by o."""
        clients, examples = cohort.population
        o = cohort.n.double() * clients / examples
        mine = recall(s, "h", cohort.clients, tree.zeros_like(s["h"]))
        return Drift(self.alpha / o, tree.scaled(mine, -1 / o))

    def step(self, s: State, cohort: Cohort, trained: Trained) -> State:
        """h_k <- h_k - alpha (w_k - w_t); h <- h - alpha / N sum_k (w_k - w_t); w <- mean of w_k - h / alpha."""
        moved = tree.apply(lambda w_k, w: w_k - w, trained.w, s["w"])
        mine = tree.add(recall(s, "h", cohort.clients, tree.zeros_like(s["h"])), moved, -self.alpha)
        h = tree.add(s["h"], tree.summed(moved), -self.alpha / cohort.population[0])
        mean = self.average(s, cohort, trained)
        w = tree.add(mean["w"], h, -1 / self.alpha)
        return {"w": w, "stats": mean["stats"], "h": h} | remember(s, "h", cohort.clients, mine, self.keep)
