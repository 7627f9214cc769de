"""Zhao et al. 2018: its tables and figures, ours beside the published numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fedskew.papers import exhibits, zhao2018
from fedskew.papers.exhibits import Outcomes
from fedskew.papers.protocol import Cell, Exhibit, Scale
from fedskew.report import charts, reached
from fedskew.report.tables import Column


def exhibit_table3(outcomes: Outcomes) -> Exhibit:
    """Every accuracy beside the published one."""
    return exhibits.beside(
        "table 3",
        "Table 3: test accuracy of SGD and FedAvg with IID and non-IID data",
        [o.record() for o in outcomes],
        exhibits.named("data", "setting", "batch", "epochs"),
        "Ours: mean of the last five evaluations; differences in points.",
    )


def exhibit_pretrained(outcomes: Outcomes) -> Exhibit:
    """What one-class clients make of weights that SGD trained for a while."""
    records = [
        o.record() | {"before": next((rows[0]["accuracy"] for rows in o.records if rows), None)} for o in outcomes
    ]
    return exhibits.beside(
        "table pretrained",
        "Pre-trained non-IID(1), large B, after fewer passes of SGD",
        records,
        [*exhibits.named("data", "passes"), Column("before", "SGD", ".2%")],
        "The paper does not say how long its models were pre-trained. The learning rate goes on decaying.",
    )


def exhibit_table1(outcomes: Outcomes) -> Exhibit:
    """Points lost to skew: SGD less FedAvg non-IID at the same batch, as the paper's numbers are."""
    found = {(r["data"], r["setting"], r["size"], r["epochs"]): r for r in (o.record() for o in outcomes)}
    records = []
    for setting, size, epochs, *published in zhao2018.TABLE1:
        for column in dict.fromkeys(key[0] for key in found):
            skewed = found[column, f"FedAvg {setting}", size, epochs]
            even = found[column, "SGD", size, None]
            lost = None if None in (skewed["ours"], even["ours"]) else even["ours"] - skewed["ours"]
            spread = None if None in (skewed["std"], even["std"]) else math.hypot(skewed["std"], even["std"])
            records.append(
                {"data": column, "setting": setting, "batch": skewed["batch"], "epochs": epochs}
                | {"paper": published[zhao2018.COLUMNS.index(column)] / 100, "ours": lost, "std": spread}
                | {"seeds": min(skewed["seeds"], even["seeds"]), "rounds": skewed["rounds"]}
            )
    return exhibits.beside(
        "table 1",
        "Table 1: accuracy lost to non-IID data",
        records,
        exhibits.named("data", "setting", "batch", "epochs"),
        "SGD less FedAvg non-IID at matched batches; the deviation is that of two independent numbers.",
    )


def exhibit_table2(outcomes: Outcomes) -> Exhibit:
    """Accuracy at eight EMDs."""
    return exhibits.beside(
        "table 2",
        "Table 2: test accuracy of FedAvg over distributions of one EMD",
        [o.record() for o in outcomes],
        [*exhibits.named("data", "emd")],
        "Ours: mean and deviation over distributions.",
    )


def _curves(number: int, size: str, what: str) -> Callable[[Outcomes], Exhibit]:
    def exhibit(outcomes: Outcomes) -> Exhibit:
        shown = [o for o in outcomes if o.cell.setting["size"] == size]
        drawn = tuple(
            (column, exhibits.curves([o for o in shown if o.cell.setting["data"] == column], _training))
            for column in _columns(outcomes)
        )
        return Exhibit(f"figure {number}", f"Figure {number}: {what}", [o.record() for o in shown], None, drawn)

    return exhibit


def exhibit_figure2(outcomes: Outcomes) -> Exhibit:
    """Weight divergence by layer at the end of training."""
    shown = [o for o in outcomes if o.cell.runs[0].divergence]
    records = [
        {"data": column} | r
        for column in _columns(shown)
        for r in exhibits.layers([o for o in shown if o.cell.setting["data"] == column], _training)
    ]
    drawn = tuple(
        (
            column,
            charts.divergence_by_layer(
                ({**r, "value": r["mean"]} for r in records if r["data"] == column), percent=True
            ),
        )
        for column in _columns(shown)
    )
    title = "Figure 2: weight divergence of the layers, IID, 2-class and 1-class non-IID"
    return Exhibit("figure 2", title, records, None, drawn)


def exhibit_figure4(outcomes: Outcomes) -> Exhibit:
    """Weight divergence after one synchronisation, against EMD, a line a layer."""
    records = [
        {"data": o.cell.setting["data"], "emd": r.pop("run"), **r}
        for o in outcomes
        for r in exhibits.layers([o], lambda cell: cell.setting["emd"])
    ]
    drawn = tuple(
        (
            column,
            reached.against(
                (
                    {
                        "x": r["emd"],
                        "value": r["mean"],
                        "low": r["mean"] - (r["std"] or 0),
                        "high": r["mean"] + (r["std"] or 0),
                        "run": r["layer"],
                    }
                    for r in records
                    if r["data"] == column
                ),
                x="EMD",
                y="weight divergence",
            ),
        )
        for column in _columns(outcomes)
    )
    return Exhibit(
        "figure 4", "Figure 4: weight divergence against EMD after one synchronisation", records, None, drawn
    )


def exhibit_figure5(outcomes: Outcomes) -> Exhibit:
    """Accuracy against EMD, and the runs at EMD 1.44."""
    drawn: list[tuple[str, Any]] = []
    for column in _columns(outcomes):
        shown = [o for o in outcomes if o.cell.setting["data"] == column]
        drawn.append((column, reached.against(exhibits.against(shown, "emd"), x="EMD")))
    at = [
        {"run": o.cell.setting["data"], "value": accuracy}
        for o in outcomes
        if o.cell.setting["emd"] == 1.44
        for accuracy in o.accuracies
    ]
    if at:
        drawn.append(("the runs at EMD 1.44", reached.boxes(at)))
    records = [o.record() | {"accuracies": o.accuracies} for o in outcomes]
    return Exhibit("figure 5", "Figure 5: test accuracy against EMD", records, None, tuple(drawn))


def exhibit_figure7(outcomes: Outcomes) -> Exhibit:
    """Accuracy and EMD against beta; accuracy against alpha after warm-up."""
    a, b = ([o for o in outcomes if o.cell.where == where] for where in ("figure 7a", "figure 7b"))
    emd = [
        {
            "x": o.cell.setting["beta"],
            "value": rows[-1]["emd"],
            "low": rows[-1]["emd"],
            "high": rows[-1]["emd"],
            "run": "EMD",
        }
        for o in a
        for rows in o.records[:1]
        if rows
    ]
    records = [
        o.record()
        | {"figure": o.cell.where, "emd": next((rows[-1]["emd"] for rows in o.records if rows), None)}
        | {
            "warm_up": next(
                (rows[0]["prepared"].get("warm_up") for rows in o.records if rows and rows[0]["prepared"]), None
            )
        }
        for o in [*a, *b]
    ]
    shown = exhibits.beside(
        "figure 7",
        "Figure 7: sharing a fraction of the data with one-class clients",
        records,
        exhibits.named("figure", "data", "beta", "alpha", "emd"),
        "a: all of G merged with every client's data; b: a random alpha of G, from weights warmed up on G. Of the "
        "paper's pictures the text gives only some numbers.",
    )
    drawn = (
        ("test accuracy against beta", reached.against(exhibits.against(a, "beta"), x="beta")),
        ("EMD against beta", reached.against(emd, x="beta", y="EMD", percent=False)),
        ("test accuracy against alpha", reached.against(exhibits.against(b, "alpha", series="beta"), x="alpha")),
    )
    return Exhibit(shown.name, shown.title, shown.records, shown.table, drawn)


def _training(cell: Cell) -> str:
    epochs = cell.setting["epochs"]
    return f"{cell.setting['setting']}, E={epochs}" if epochs and epochs > 1 else str(cell.setting["setting"])


def _columns(outcomes: Outcomes) -> list[str]:
    """The data sets of which there is something to draw."""
    return list(dict.fromkeys(o.cell.setting["data"] for o in outcomes if any(o.records)))


# What can be asked for: the cells it needs, and what is made of them.
EXHIBITS: dict[str, tuple[Callable[[str, Scale], list[Cell]], Callable[[Outcomes], Exhibit]]] = {
    "table 1": (zhao2018.table3, exhibit_table1),
    "table 2": (zhao2018.table2, exhibit_table2),
    "table 3": (zhao2018.table3, exhibit_table3),
    "table pretrained": (zhao2018.pretrained, exhibit_pretrained),
    "figure 1": (zhao2018.table3, _curves(1, "large", "test accuracy over communication rounds, large batches")),
    "figure 2": (zhao2018.table3, exhibit_figure2),
    "figure 4": (zhao2018.figure4, exhibit_figure4),
    "figure 5": (zhao2018.table2, exhibit_figure5),
    "figure 7": (zhao2018.figure7, exhibit_figure7),
    "figure 8": (zhao2018.table3, _curves(8, "small", "test accuracy over communication rounds, small batches")),
}
DATA = dict.fromkeys(EXHIBITS, zhao2018.COLUMNS) | {"figure 7": ("cifar10",)}
TITLE = "Zhao et al. 2018, Federated Learning with Non-IID Data"
