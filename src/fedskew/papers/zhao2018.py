"""Zhao et al. 2018, "Federated Learning with Non-IID Data": runs and published numbers of every table and figure.

Ten clients, all of them in every round; the learning rate decays with the round (section 2.1). The paper does not say
how many rounds its Table 3 took. Here it is 500 as in its section 3.2.1, and for CIFAR-10, where nothing changes after
that, 300 as in section 4.2. "Large" and "small" batches are 100 and 10, for KWS 50 and 10; SGD's are ten times larger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedskew.papers.protocol import Cell, Scale
from fedskew.run import Run


@dataclass(frozen=True)
class Task:
    """A data set's recipe."""

    data: str
    lr: float
    decay: float
    large: int
    small: int
    rounds: int  # of Tables 1 and 3
    emd_rounds: int  # of Table 2; the paper: 500
    transform: str = "auto"


TASKS = {
    "mnist": Task("mnist", 0.01, 0.995, 100, 10, 500, 500, "standardise"),  # each image by itself, as for CIFAR-10
    "cifar10": Task("cifar10", 0.1, 0.992, 100, 10, 300, 500),
    "kws": Task("speech-commands", 0.05, 0.992, 50, 10, 500, 500),
}
COLUMNS = ("mnist", "cifar10", "kws")
SCALES = {
    "smoke": Scale("smoke", rounds=0.06, seeds=1, every=7, data="digits", model="mlp"),
    "quick": Scale(
        *("quick", 0.1, 30), batch=10, examples=1200, every=3, highest_lr=0.05, evaluations=6, passes=20
    ),  # an evaluation of ten thousand images takes as long as two rounds
    "full": Scale("full"),
}

# Appendix A.2, Table 3: training, batch, E, then percent on MNIST, CIFAR-10, KWS.
TABLE3 = (
    ("SGD", "large", None, 98.69, 81.51, 84.46),
    ("FedAvg IID", "large", 1, 98.69, 80.83, 84.82),
    ("FedAvg non-IID(2)", "large", 1, 96.29, 67.00, 72.30),
    ("FedAvg non-IID(1)", "large", 1, 92.17, 43.85, 40.82),
    ("FedAvg non-IID(1)", "large", 5, 91.92, 44.40, 40.84),
    ("Pre-trained non-IID(1)", "large", 1, 96.19, 61.72, 63.58),
    ("SGD", "small", None, 99.01, 84.14, 86.28),
    ("FedAvg IID", "small", 1, 99.12, 82.62, 86.64),
    ("FedAvg non-IID(2)", "small", 1, 97.24, 68.53, 71.21),
    ("FedAvg non-IID(1)", "small", 1, 87.70, 32.83, 31.78),
)
# Section 2.2, Table 1: points lost to SGD with the matched batch, on MNIST, CIFAR-10, KWS.
TABLE1 = (
    ("non-IID(1)", "large", 1, 6.52, 37.66, 43.64),
    ("non-IID(1)", "large", 5, 6.77, 37.11, 43.62),
    ("non-IID(2)", "large", 1, 2.4, 14.51, 12.16),
    ("non-IID(1)", "small", 1, 11.31, 51.31, 54.5),
    ("non-IID(2)", "small", 1, 1.77, 15.61, 15.07),
)
# Section 3.2.3, Table 2: mean accuracy over five distributions, and its deviation.
EMDS = (0.0, 0.36, 0.72, 1.08, 1.44, 1.62, 1.764, 1.8)
TABLE2 = {
    "mnist": (0.9857, 0.9860, 0.9852, 0.9835, 0.9799, 0.9756, 0.962, 0.922),
    "cifar10": (0.8099, 0.8090, 0.8017, 0.7817, 0.7379, 0.6905, 0.5438, 0.4396),
    "kws": (0.8496, 0.8461, 0.8413, 0.8331, 0.7979, 0.7565, 0.5827, 0.4475),
}
TABLE2_STD = {
    "mnist": (6.431e-4, 2.939e-4, 4.604e-4, 4.308e-4, 4.716e-4, 8.085e-4, 8.232e-4, 1.939e-4),
    "cifar10": (2.06e-3, 2.694e-3, 2.645e-3, 3.622e-3, 3.383e-3, 2.048e-3, 9.655e-3, 1.068e-3),
    "kws": (1.337e-3, 3.930e-3, 4.410e-3, 5.387e-3, 1.763e-3, 3.329e-3, 1.078e-3, 4.464e-3),
}
DISTRIBUTIONS = 5
# Section 4.2, Figure 7: CIFAR-10, one-class clients, D of 40,000, H of 10,000. Of the pictures, the text gives these.
BETAS = (0.025, 0.05, 0.075, 0.1, 0.125, 0.15, 0.175, 0.2, 0.225, 0.25)
FIGURE7A = {0.0: 0.44, 0.1: 0.7412, 0.25: 0.7872}
ALPHAS = (0.1, 0.25, 0.5, 0.75, 1.0)
FIGURE7B = {(0.1, 1.0): 0.7312, (0.2, 1.0): 0.7708}  # the highest of each curve
WARM = 0.6

# Passes of SGD before the pre-trained row, of which the paper says nothing; Table 3 has as many as its SGD row.
PASSES = (10, 30, 100)

PARTITION = {"IID": "iid", "non-IID(2)": "classes:2", "non-IID(1)": "classes:1"}


def run(column: str, scale: Scale, **fields: Any) -> Run:
    """A run of a data set's recipe."""
    task = TASKS[column]
    base: dict[str, Any] = {
        "data": scale.data or task.data,
        "model": scale.model,
        "transform": "auto" if scale.data else task.transform,
        "examples": None if scale.data else scale.examples,
        "partition": "iid",
        "clients": 10,
        "lr": min(task.lr, scale.highest_lr) if scale.data is None else 0.1,
        "lr_decay": task.decay,
        "eval_every": scale.eval_every(task.rounds),
    }
    return Run(**(base | fields))


def table3(column: str, scale: Scale) -> list[Cell]:
    """Every row of Table 3; Table 1 is differences between them, Figures 1 and 8 are their curves."""
    task, cells = TASKS[column], []
    for training, size, epochs, *published in TABLE3:
        kind, _, setting = training.partition(" ")
        fields: dict[str, Any] = {
            "batch": max(2, (task.large if size == "large" else task.small) // scale.batch),
            "epochs": epochs or 1,
            "rounds": scale.of(task.rounds),
            "algorithm": "sgd" if kind == "SGD" else "fedavg",
            "partition": PARTITION.get(setting, "iid"),
            # Figure 2 shows these layer by layer
            "divergence": kind == "FedAvg" and size == "large" and epochs == 1,
        }
        runs = tuple(run(column, scale, **fields, seed=seed) for seed in range(scale.seeds))
        cell = Cell(
            "table 3",
            {"data": column, "setting": training, "batch": fields["batch"], "epochs": epochs, "size": size},
            runs,
            published[COLUMNS.index(column)] / 100,
        )
        if kind == "Pre-trained":
            cell = _pretrained(cell, fields["rounds"])
        cells.append(cell)
    return cells


def pretrained(column: str, scale: Scale) -> list[Cell]:
    """Not in the paper, which does not say how long SGD trained before: Table 3's row after fewer passes."""
    [row] = (cell for cell in table3(column, scale) if cell.after)
    clients = tuple(Run(**r.model_dump() | {"lr": before.lr}) for r, before in zip(row.after, row.runs, strict=True))
    passes = [scale.of(rounds) for rounds in (PASSES if scale.name == "full" else PASSES[:1])]
    return [
        _pretrained(Cell("table pretrained", {"data": column, "passes": rounds}, clients, row.paper), rounds)
        for rounds in passes
    ]


def _pretrained(cell: Cell, rounds: int) -> Cell:
    """SGD's weights first, then the cell's clients, whose learning rate goes on decaying."""
    sgd = {"algorithm": "sgd", "partition": "iid", "rounds": rounds}
    before = tuple(Run(**r.model_dump() | sgd) for r in cell.runs)
    after = tuple(Run(**r.model_dump() | {"lr": r.lr_of(rounds + 1)}) for r in cell.runs)
    return Cell(cell.where, cell.setting, before, cell.paper, after)


def table2(column: str, scale: Scale) -> list[Cell]:
    """Accuracy at eight EMDs, five distributions each (Figure 5); seeds are distributions."""
    task = TASKS[column]
    distributions = DISTRIBUTIONS if scale.name == "full" else 2
    recipe = {"batch": task.large // scale.batch, "rounds": scale.of(task.emd_rounds)}
    return [
        Cell(
            "table 2",
            {"data": column, "emd": emd, "paper_std": TABLE2_STD[column][EMDS.index(emd)]},
            tuple(run(column, scale, **recipe, partition=_emd(emd), seed=seed) for seed in range(distributions)),
            TABLE2[column][EMDS.index(emd)],
        )
        for emd in scale.thinned(EMDS)
    ]


def figure4(column: str, scale: Scale) -> list[Cell]:
    """Weight divergence by layer after one synchronisation, at the EMDs and distributions of Table 2."""
    return [
        Cell(
            "figure 4",
            {"data": column, "emd": cell.setting["emd"]},
            tuple(Run(**r.model_dump() | {"rounds": 1, "eval_every": 1, "divergence": True}) for r in cell.runs),
            None,
        )
        for cell in table2(column, scale)
    ]


def figure7(column: str, scale: Scale) -> list[Cell]:
    """Accuracy and EMD against beta, all of G merged; then against alpha, from weights warmed up to 60 %."""
    task = TASKS[column]
    seeds = range(scale.seeds)
    base: dict[str, Any] = {"batch": task.large // scale.batch, "partition": "classes:1", "holdout": 0.2}
    base["rounds"] = scale.of(task.rounds)

    def runs(**fields: Any) -> tuple[Run, ...]:
        return tuple(run(column, scale, **base, **fields, seed=seed) for seed in seeds)

    a = [
        Cell(
            "figure 7a",
            {"data": column, "beta": beta},
            runs(share=f"beta={beta}") if beta else runs(),
            FIGURE7A.get(beta) if column == "cifar10" else None,
        )
        for beta in (0.0, *scale.thinned(BETAS))
    ]
    b = [
        Cell(
            "figure 7b",
            {"data": column, "beta": beta, "alpha": alpha},
            runs(share=f"beta={beta},alpha={alpha}", warm_up=f"{WARM},most={scale.passes}"),
            FIGURE7B.get((beta, alpha)) if column == "cifar10" else None,
        )
        for beta in (0.1, 0.2)
        for alpha in scale.thinned(ALPHAS)
    ]
    return a + b


def _emd(emd: float) -> str:
    return f"emd:{emd:g}"
