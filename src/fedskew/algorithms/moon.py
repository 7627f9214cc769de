"""MOON, model-contrastive federated learning: Li, He and Song 2021, Algorithm 1."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from fedskew.algorithms.method import Method
from fedskew.algorithms.state import Keep, State, recall, remember
from fedskew.engine.batches import Cohort
from fedskew.engine.problem import Trained
from fedskew.engine.terms import Contrast


class Moon(Method):
    """Clients add mu times a contrastive loss: features near the global network's, far from their own last ones.

    A client's first round has no last weights; the global ones stand in for them.
    """

    kind: Literal["moon"] = "moon"
    positional: ClassVar[str] = "mu"
    mu: float = Field(1.0, ge=0)
    temperature: float = Field(0.5, gt=0)
    keep: Keep = "device"

    def contrast(self, s: State, cohort: Cohort) -> Contrast:
        """The client's weights at the end of its last round."""
        previous = recall(s, "previous", cohort.clients, s["w"])
        like = next(iter(s["w"].values())).new_ones(len(cohort))
        return Contrast(previous, self.mu * like, self.temperature * like)

    def step(self, s: State, cohort: Cohort, trained: Trained) -> State:
        """The state after the cohort has trained."""
        mean = self.average(s, cohort, trained)
        return mean | remember(s, "previous", cohort.clients, trained.w, self.keep)
