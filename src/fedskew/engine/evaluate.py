"""Test accuracy and loss of one set of weights, overall and by class."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

from fedskew.data import transforms
from fedskew.engine.functional import function_of
from fedskew.engine.problem import Problem
from fedskew.tree import Tree

CHUNK = 1000  # examples at a time: large enough to fill a device, small enough for any memory


@dataclass(frozen=True)
class Scores:
    """What the test set says; a class without test examples has accuracy NaN."""

    accuracy: float
    loss: float
    per_class: tuple[float, ...]


@dataclass(frozen=True)
class Exam:
    """Weights that are to be scored on these examples."""

    w: Tree
    stats: Tree
    x: torch.Tensor
    y: torch.Tensor
    classes: int


@torch.no_grad()
def evaluate(problem: Problem, exam: Exam) -> Scores:
    """Evaluate in chunks on the device; one transfer to the host at the end."""
    x, y, classes = exam.x, exam.y, exam.classes
    model = function_of(problem.model.eval())
    right = torch.zeros(classes, dtype=torch.float64, device=x.device)
    loss = torch.zeros((), dtype=torch.float64, device=x.device)
    for at in range(0, len(x), CHUNK):
        batch, labels = x[at : at + CHUNK], y[at : at + CHUNK]
        logits = model(exam.w | exam.stats, transforms.testing(problem.transform, batch, problem.dtype))
        right.index_add_(0, labels, (logits.argmax(dim=1) == labels).double())
        loss += cross_entropy(logits, labels, reduction="sum")
    held = torch.bincount(y, minlength=classes).double()
    *per_class, accuracy, mean_loss = torch.cat([right / held, torch.stack([right.sum(), loss]) / len(x)]).tolist()
    return Scores(accuracy, mean_loss, tuple(per_class))
