"""Lahoti et al., "Improving FedAvg Algorithm Performance with Non-IID data": runs and published numbers of its figures.

Twenty clients, B = 10, E = 1 (section 3.1); MNIST with lr 0.01 for 10 rounds, CIFAR-10 with lr 0.1 for 30. The paper
gives no width for its layers, no scaling of pixels, no length of its warm-up, and numbers for its gains only. McMahan's
network for MNIST has the form that it describes; images are standardised, as for Zhao et al.; five passes are ours.
A holdout of a fifth is left aside in every run, so that clients hold the same data with and without sharing.
"""

from __future__ import annotations

from typing import Any

from fedskew.papers.protocol import Cell, Scale
from fedskew.run import Run

RECIPES: dict[str, dict[str, Any]] = {
    "mnist": {"data": "mnist", "model": "mnist-cnn", "transform": "standardise", "lr": 0.01, "rounds": 10},
    "cifar10": {"data": "cifar10", "model": "lahoti-cifar", "lr": 0.1, "rounds": 30},
}
COLUMNS = tuple(RECIPES)
CLASSES = (1, 2, 3, 5)
PUBLISHED = 0.1  # the fraction of Figures 4 and 5, for which the text gives numbers
# With 20 % of the data shared a client trains on five times its own.
FRACTIONS = {"smoke": (PUBLISHED,), "quick": (0.05, PUBLISHED), "full": (0.05, PUBLISHED, 0.2)}
PASSES = 5
SCALES = {
    "smoke": Scale("smoke", rounds=0.4, data="digits", model="mlp"),
    # At 0.05 what a warm-up with so few examples gives is undone; of 1,500 two classes are as good as three.
    "quick": Scale("quick", most=12, batch=2, examples=2250, highest_lr=0.02, evaluations=6),
    "full": Scale("full"),
}
# Section 5.5: points gained on one-class clients by 10 % of the data.
GAINS = {
    "mnist": {"warm-up": 0.11, "sharing": 0.18, "both": 0.24},
    "cifar10": {"warm-up": 0.29, "sharing": 0.32, "both": 0.35},
}


def run(column: str, scale: Scale, **fields: Any) -> Run:
    """A run of a data set's recipe."""
    recipe = RECIPES[column]
    base = recipe | {
        "partition": "iid",
        "clients": 20,
        "holdout": 0.2,
        "examples": scale.examples,
        "batch": 10 // scale.batch,
        "lr": min(recipe["lr"], scale.highest_lr),
        "rounds": scale.of(recipe["rounds"]),
        "eval_every": scale.eval_every(recipe["rounds"]),
    }
    if scale.data:
        base |= {"data": scale.data, "model": scale.model, "transform": "auto", "examples": None, "lr": 0.05}
    return Run(**(base | fields))


def settings(column: str, scale: Scale) -> list[Cell]:
    """Figures 1 to 3: SGD, IID, and clients of n classes, with the divergence of their weights."""
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("SGD", {"algorithm": "sgd"}),
        ("IID", {"partition": "iid", "divergence": True}),
        *((f"non-IID({n})", {"partition": f"classes:{n}", "divergence": True}) for n in CLASSES),
    ]
    return [_cell("figure 1", column, scale, name, fields) for name, fields in kinds]


def remedies(column: str, scale: Scale) -> list[Cell]:
    """Figures 4 to 7: one-class clients with warm-up, with sharing and with both, over fractions of the data."""
    one: dict[str, Any] = {"partition": "classes:1", "divergence": True}
    cells = [_cell("figure 6", column, scale, "nothing", one, fraction=0.0)]
    for fraction in FRACTIONS[scale.name]:
        warm = {"warm_up": f"rounds={PASSES},fraction={fraction}"}
        share = {"share": f"beta={fraction}"}
        for name, remedy in (("warm-up", warm), ("sharing", share), ("both", warm | share)):
            cells.append(_cell("figure 6", column, scale, name, one | remedy, fraction=fraction))
    return cells


def _cell(where: str, column: str, scale: Scale, name: str, fields: dict[str, Any], **more: Any) -> Cell:
    runs = tuple(run(column, scale, **fields, seed=seed) for seed in range(scale.seeds))
    return Cell(where, {"data": column, "setting": name} | more, runs, None)
