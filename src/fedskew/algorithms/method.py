"""What all federated methods share: their mean, their loss, their sampling, and plain defaults for the two seams."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import ConfigDict, Field

from fedskew.algorithms.losses import CrossEntropy, Loss
from fedskew.algorithms.means import Average, Mean
from fedskew.algorithms.state import State
from fedskew.engine.batches import Cohort
from fedskew.engine.problem import Trained
from fedskew.engine.terms import Contrast, Drift, Logits, Terms
from fedskew.spec import Spec
from fedskew.tree import Tree


class Method(Spec):
    """Options that go with every method; a method adds `init`, `drift`, `contrast` and `step` as its paper has them."""

    model_config = ConfigDict(allow_inf_nan=False)
    traffic: ClassVar[int] = 1  # messages as large as the weights that a client gets, and sends, in a round

    mean: Mean = Average()  # average, median, trimmed:f, krum:f, clip:norm
    loss: Loss = CrossEntropy()  # cross-entropy, restricted:alpha, adjusted:tau
    smoothing: float = Field(default=0.0, ge=0, lt=1)  # of labels (Szegedy et al. 2016)
    sampling: Literal["shuffled", "balanced"] = "shuffled"  # balanced: a client's classes are drawn equally often
    swa: float = Field(default=0.0, ge=0, le=1)  # test the mean of this share of the rounds, the last ones

    @property
    def counts_labels(self) -> bool:
        """Whether clients' label counts are needed."""
        return self.loss.kind != "cross-entropy" or self.smoothing > 0

    def init(self, w: Tree, stats: Tree) -> State:
        """The state before the first round."""
        return {"w": w, "stats": stats}

    def drift(self, s: State, cohort: Cohort) -> Drift | None:
        """What is added to a client's gradient."""
        return None

    def contrast(self, s: State, cohort: Cohort) -> Contrast | None:
        """What a client's features are compared with."""
        return None

    def terms(self, s: State, cohort: Cohort) -> Terms:
        """All that the method adds to the cohort's plain SGD."""
        return Terms(self.drift(s, cohort), self.logits(cohort), self.contrast(s, cohort))

    def average(self, s: State, cohort: Cohort, trained: Trained) -> State:
        """`w` and `stats` of the cohort as one, by the method's mean."""
        return self.mean(s, trained, cohort.n)

    def logits(self, cohort: Cohort) -> Logits | None:
        """What clients put in place of the cross-entropy of their logits, from the label counts they hold."""
        if cohort.counts is None:
            return None
        scale, offset = self.loss(cohort.counts.float())
        return Logits(scale, offset, torch.full_like(scale[:, 0], self.smoothing))
