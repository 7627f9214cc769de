"""What a method carries from round to round, and the one average they all start from."""

from __future__ import annotations

from torch import Tensor

from fedskew import tree
from fedskew.engine.problem import Trained
from fedskew.tree import Tree

State = dict[str, Tree]  # "w" the global weights, "stats" the batch-norm statistics, and what the method adds


def average(trained: Trained, n: Tensor) -> State:
    """sum_k n_k / n w_k, for weights and batch-norm statistics alike."""
    return {"w": tree.mean(trained.w, n), "stats": tree.mean(trained.stats, n)}
