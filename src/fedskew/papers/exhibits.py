"""What the papers' tables and figures have in common: ours beside the published number, and a curve with its spread."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from fedskew.papers.protocol import Cell, Exhibit
from fedskew.report import charts
from fedskew.report.parts import Chart
from fedskew.report.tables import Column, Table, points


class Outcome(Protocol):
    """A cell that was trained (see reproduce.Outcome)."""

    cell: Cell
    records: tuple[list[dict[str, Any]], ...]
    decided: bool

    @property
    def accuracies(self) -> list[float]:
        """One a run."""

    def so_far(self, most: int | None = None) -> tuple[int, list[float]]:
        """Rounds trained (at most so many), and one accuracy a run."""

    def first(self, number: int) -> Outcome:
        """What so many of its runs gave."""

    def record(self) -> dict[str, Any]:
        """The cell as JSON has it."""


Outcomes = Sequence[Outcome]
Maker = Callable[[Outcomes], Exhibit]


def beside(
    name: str, title: str, records: list[dict[str, Any]], columns: Sequence[Column], caption: str = ""
) -> Exhibit:
    """Setting, paper, ours (mean, deviation, seeds), difference."""
    rows = [
        r | {"difference": None if r["ours"] is None or r["paper"] is None else r["ours"] - r["paper"]} for r in records
    ]
    shown = [
        *columns,
        Column("paper", "paper", ".2%"),
        Column("ours", "ours", ".2%"),
        Column("std", "±", ".2%"),
        Column("seeds", "runs"),
        Column("difference", "difference", points),
    ]
    return Exhibit(name, title, rows, Table(title, shown, rows, caption))


def named(*keys: str) -> list[Column]:
    """Columns of a setting."""
    forms = {"emd": ".3f", "beta": ".1%", "alpha": ".0%"}
    headers = {"batch": "B", "epochs": "E", "emd": "EMD"}
    text = ("data", "setting", "figure", "algorithm")
    return [Column(k, headers.get(k, k), forms.get(k, ""), "left" if k in text else "right") for k in keys]


def curves(outcomes: Outcomes, label: Callable[[Cell], str], level: tuple[str, float] | None = None) -> Chart:
    """Accuracy over rounds, the runs of a cell as a band, and a dashed line."""
    found = (
        {"run": label(o.cell), "round": r["round"], "accuracy": r["accuracy"]}
        for o in outcomes
        for rows in o.records
        for r in rows
    )
    return charts.accuracy_curves(found, level=level)


def spread(values: Iterable[float]) -> dict[str, float | None]:
    """Mean and deviation."""
    found = list(values)
    return {
        "mean": statistics.fmean(found) if found else None,
        "std": statistics.stdev(found) if len(found) > 1 else None,
    }


def layers(outcomes: Outcomes, label: Callable[[Cell], Any], definition: str = "relative") -> list[dict[str, Any]]:
    """Weight divergence by layer in the last row that has it: mean and deviation over a cell's runs."""
    found = []
    for o in outcomes:
        last = [next((r["divergence"] for r in reversed(rows) if r["divergence"]), None) for rows in o.records]
        measured = [d[definition]["layers"] for d in last if d]
        for layer in measured[0] if measured else ():
            found.append({"run": label(o.cell), "layer": layer} | spread(m[layer] for m in measured))
    return found


def against(outcomes: Outcomes, x: str, *, series: str = "") -> list[dict[str, Any]]:
    """Points of a curve: x, ours with its deviation, and the paper's where it is given."""
    found = []
    for o in outcomes:
        r = o.record()
        tail = f", {series} {r[series]:g}" if series else ""
        for source, value, std in (("ours", r["ours"], r["std"]), ("paper", r["paper"], r.get("paper_std"))):
            if value is not None:
                low, high = value - (std or 0.0), value + (std or 0.0)
                found.append({"x": r[x], "value": value, "low": low, "high": high, "run": source + tail})
    return found
