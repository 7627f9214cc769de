"""Lahoti et al.: its figures, and its gains beside ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedskew.papers import exhibits, lahoti
from fedskew.papers.exhibits import Outcomes
from fedskew.papers.protocol import Cell, Exhibit, Scale
from fedskew.report import charts, reached
from fedskew.report.parts import Chart

TITLE = "Lahoti et al., Improving FedAvg Algorithm Performance with Non-IID data"


def exhibit_figure1(outcomes: Outcomes) -> Exhibit:
    """Accuracy over rounds of SGD, IID and one-class clients."""
    shown = [o for o in outcomes if o.cell.setting["setting"] in ("SGD", "IID", "non-IID(1)")]
    return Exhibit("figure 1", "Figure 1: test accuracy over rounds", _records(shown), None, _curves(shown))


def _by_classes(number: int, column: str) -> Callable[[Outcomes], Exhibit]:
    def exhibit(outcomes: Outcomes) -> Exhibit:
        shown = [o for o in outcomes if o.cell.setting["data"] == column]
        records = _records(shown) + _rms(shown)
        drawn = (*_curves(shown), ("weight divergence (root mean square)", _bars(shown)))
        title = f"Figure {number}: accuracy and weight divergence against classes a client, {column}"
        return Exhibit(f"figure {number}", title, records, None, drawn)

    return exhibit


def _compared(number: int, column: str) -> Callable[[Outcomes], Exhibit]:
    def exhibit(outcomes: Outcomes) -> Exhibit:
        fractions = (0.0, lahoti.PUBLISHED)
        shown = [o for o in outcomes if o.cell.setting["data"] == column and o.cell.setting["fraction"] in fractions]
        drawn = (*_curves(shown), ("weight divergence (root mean square)", _bars(shown)))
        plain = next((o.record()["ours"] for o in shown if o.cell.setting["fraction"] == 0.0), None)
        records = []
        for o in shown:
            r = o.record()
            gained = None if None in (plain, r["ours"]) else r["ours"] - plain
            paper = lahoti.GAINS[column].get(r["setting"])
            records.append(r | {"accuracy": r["ours"], "paper": paper, "ours": gained, "std": None})
        found = exhibits.beside(
            f"figure {number}",
            f"Figure {number}: one-class clients with 10 % of the data for warm-up, sharing or both, {column}",
            [r for r in records if r["setting"] != "nothing"],
            exhibits.named("data", "setting"),
            "Points gained over one-class clients without a remedy.",
        )
        return Exhibit(found.name, found.title, [*found.records, *_rms(shown)], found.table, drawn)

    return exhibit


def _varied(number: int, column: str) -> Callable[[Outcomes], Exhibit]:
    def exhibit(outcomes: Outcomes) -> Exhibit:
        shown = [o for o in outcomes if o.cell.setting["data"] == column]
        points: list[dict[str, Any]] = []
        for name in ("warm-up", "sharing", "both"):
            of_kind = [o for o in shown if o.cell.setting["setting"] in (name, "nothing")]
            points += [p | {"run": name} for p in exhibits.against(of_kind, "fraction")]
        drawn = (("test accuracy against the fraction of the data", reached.against(points, x="fraction")),)
        title = f"Figure {number}: varying the fraction of warm-up and shared data, {column}"
        return Exhibit(f"figure {number}", title, _records(shown), None, drawn)

    return exhibit


def _records(outcomes: Outcomes) -> list[dict[str, Any]]:
    return [o.record() for o in outcomes]


def _rms(outcomes: Outcomes) -> list[dict[str, Any]]:
    return exhibits.layers(outcomes, lambda cell: cell.setting["setting"], "rms")


def _bars(outcomes: Outcomes) -> Chart:
    return charts.divergence_by_layer(
        ({**r, "value": r["mean"]} for r in _rms(outcomes)), measure="root mean square difference"
    )


def _curves(outcomes: Outcomes) -> tuple[tuple[str, Any], ...]:
    columns = dict.fromkeys(o.cell.setting["data"] for o in outcomes)
    return tuple(
        (c, exhibits.curves([o for o in outcomes if o.cell.setting["data"] == c], lambda cell: cell.setting["setting"]))
        for c in columns
    )


EXHIBITS: dict[str, tuple[Callable[[str, Scale], list[Cell]], Callable[[Outcomes], Exhibit]]] = {
    "figure 1": (lahoti.settings, exhibit_figure1),
    "figure 2": (lahoti.settings, _by_classes(2, "mnist")),
    "figure 3": (lahoti.settings, _by_classes(3, "cifar10")),
    "figure 4": (lahoti.remedies, _compared(4, "cifar10")),
    "figure 5": (lahoti.remedies, _compared(5, "mnist")),
    "figure 6": (lahoti.remedies, _varied(6, "mnist")),
    "figure 7": (lahoti.remedies, _varied(7, "cifar10")),
}
DATA = {
    "figure 1": lahoti.COLUMNS,
    **dict.fromkeys(("figure 2", "figure 5", "figure 6"), ("mnist",)),
    **dict.fromkeys(("figure 3", "figure 4", "figure 7"), ("cifar10",)),
}
