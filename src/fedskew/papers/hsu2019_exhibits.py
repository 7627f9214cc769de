"""Hsu et al. 2019: its figures, ours beside the published numbers, and what goes past the paper."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fedskew import measure
from fedskew.data import datasets
from fedskew.papers import exhibits, hsu2019, hsu2019_grid
from fedskew.papers.exhibits import Outcome, Outcomes
from fedskew.papers.protocol import Cell, Exhibit
from fedskew.report import reached
from fedskew.report.parts import Chart
from fedskew.report.population import population
from fedskew.report.tables import Column, Table, points
from fedskew.run import Run
from fedskew.sides import split

TITLE = "Hsu et al. 2019, Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification"
LEVEL = ("centralised (paper)", hsu2019.CENTRALISED)
CHANCE = ("chance", 0.1)
_OURS = "Ours: mean over populations of each run's last five evaluations, after so many rounds of the paper's 10,000; "
CAPTION = _OURS + "lr and beta were chosen on a validation split."
EVERY_PAIR = _OURS + "every pair is shown, and those of a panel after as many rounds."
SAME_RATE = _OURS + "lr is the same at every alpha; the centralised run's was chosen on a validation split."
EVEN = _OURS + "lr was chosen on a validation split, and all cells of a chart are shown after as many rounds."
SKEWED_TO_THE_RIGHT = tuple(reversed(hsu2019_grid.ALPHAS))


def record(o: Outcome, most: int | None = None) -> dict[str, Any]:
    """A cell as the committed JSON has it: what was chosen, how far it was trained, and what came of it.

    Read at an earlier round than it was trained to, it does not stand beside the published number.
    """
    rounds, accuracies = o.so_far(most)
    run = o.cell.runs[0]
    chosen = {"beta": getattr(run.algorithm, "beta", 0.0), "lr": run.lr} if o.decided else {"beta": None, "lr": None}
    return (
        o.cell.setting
        | chosen
        | {
            "rounds": rounds,
            "accuracy": statistics.fmean(accuracies) if accuracies else None,
            "std": statistics.stdev(accuracies) if len(accuracies) > 1 else None,
            "seeds": len(accuracies),
            "paper": o.cell.paper if most is None or rounds == o.so_far()[0] else None,
        }
    )


def alike(outcomes: Outcomes, panel_of: Callable[[dict[str, Any]], Any]) -> list[dict[str, Any]]:
    """Records of cells that are compared: those of a panel after as many rounds, in as many populations.

    Where most of a panel's cells have no row yet, the few say nothing, and the panel is left out.
    """
    panels: dict[Any, list[Outcome]] = {}
    for o in outcomes:
        panels.setdefault(panel_of(o.cell.setting), []).append(o)
    records = []
    for panel in panels.values():
        begun = [o for o in panel if any(o.records)]
        if 2 * len(begun) < len(panel):
            continue
        populations = min(sum(map(bool, o.records)) for o in begun)
        same = [o.first(populations) for o in panel]
        most = min((rounds for rounds, accuracies in (o.so_far() for o in same) if accuracies), default=None)
        records += [record(o, most) for o in same]
    return records


def exhibit_figure1(outcomes: Outcomes) -> Exhibit:
    """Stacked bars a client, and the populations' realised EMD."""
    records, drawn = [], []
    for o in outcomes:
        setting = o.cell.setting
        data = datasets.load(setting["data"])
        run = Run(**{key: setting[key] for key in ("data", "examples", "partition", "clients")})
        counts = measure.counts(data.y, split(run, data), len(data.classes))
        emd = measure.emd(counts, counts.sum(axis=0))
        records.append(
            setting
            | {"emd": float(emd.mean()), "classes": float((counts > 0).sum(axis=1).mean())}
            | {"size": float(counts.sum(axis=1).mean())}
        )
        if setting["alpha"] is None or setting["alpha"] in hsu2019.SHOWN:
            drawn.append((setting["partition"], population(counts, data.classes, title=setting["partition"])))
    columns = [
        Column("partition", "partition", align="left"),
        Column("clients", "clients"),
        Column("size", "images a client", ".0f"),
        Column("classes", "classes a client", ".1f"),
        Column("emd", "EMD", ".2f"),
    ]
    title = "Figure 1: synthetic populations with non-identical clients"
    return Exhibit("figure 1", title, records, Table(title, columns, records, "Means over clients."), tuple(drawn))


def exhibit_figure2(outcomes: Outcomes) -> Exhibit:
    """FedAvg's accuracy against alpha, a line a C, a chart an E."""
    records = alike(outcomes, lambda setting: setting["E"])
    drawn = [
        (f"E = {epochs}", _over_alpha((r for r in records if r["E"] == epochs), lambda r: f"C = {r['C']:g}"))
        for epochs in dict.fromkeys(r["E"] for r in records)
    ]
    return _shown("figure 2", "Figure 2: FedAvg against alpha, for C and E", records, drawn, EVEN)


def exhibit_figure3(outcomes: Outcomes) -> Exhibit:
    """Learning curves with one learning rate; the dashed line is the published centralised result.

    A chart a C; one of which nothing was trained is left out.
    """
    sgd = [o for o in outcomes if "alpha" not in o.cell.setting]
    shown, drawn = [], []
    for fraction in dict.fromkeys(o.cell.setting["C"] for o in outcomes if "C" in o.cell.setting):
        panel = [o for o in outcomes if o.cell.setting.get("C") == fraction]
        if any(any(o.records) for o in panel):
            shown += panel
            drawn.append((f"C = {fraction:g}", exhibits.curves([*panel, *sgd], _curve, LEVEL)))
    records = [record(o) for o in [*shown, *sgd]]
    return _shown("figure 3", "Figure 3: FedAvg's learning curves with one learning rate", records, drawn, SAME_RATE)


def exhibit_figure4(outcomes: Outcomes) -> Exhibit:
    """Accuracy against the learning rate, a line an alpha, a chart a C and E."""
    records = alike(outcomes, _panel)
    drawn = [
        (
            name,
            reached.against(_points(found, "lr", lambda r: f"alpha = {r['alpha']:g}"), x="lr", log=True, level=CHANCE),
        )
        for name, found in _panels(records)
    ]
    return _shown("figure 4", "Figure 4: FedAvg's sensitivity to the learning rate", records, drawn, EVERY_PAIR)


def exhibit_figure5(outcomes: Outcomes) -> Exhibit:
    """FedAvgM and FedAvg against alpha, a chart a C and E; records go as far as a cell was trained, charts do not."""
    records, even = [record(o) for o in outcomes], alike(outcomes, _panel)
    drawn = [(name, _over_alpha(found, lambda r: str(r["algorithm"]))) for name, found in _panels(even)]
    low, high = hsu2019.HEADLINE
    caption = (
        f"{CAPTION} A chart shows all of its cells after as many rounds. Paper: section 4.2, E = 1 and C = 0.05: "
        "FedAvgM above 75 % at every alpha, FedAvg falls to around 35 %; its abstract: "
        f"from {low:.1%} to {high:.1%} in the most skewed settings."
    )
    return _shown("figure 5", "Figure 5: FedAvgM and FedAvg against alpha", records, drawn, caption)


def exhibit_figure6(outcomes: Outcomes) -> Exhibit:
    """FedAvgM's accuracy against the effective learning rate, a chart a C and E."""
    records = [r | {"effective": r["lr"] / (1 - r["beta"])} for r in alike(outcomes, _panel)]
    drawn = [
        (name, reached.sensitivity({**r, "run": f"beta = {r['beta']:g}"} for r in found))
        for name, found in _panels(records)
    ]
    return _shown("figure 6", "Figure 6: FedAvgM's sensitivity to lr and beta at alpha = 1", records, drawn, EVERY_PAIR)


def exhibit_remedies(outcomes: Outcomes) -> Exhibit:
    """Every remedy, the best of each kind first, with the command that trains it."""
    records = [record(o) | {"algorithm": _written(o), "command": _command(o)} for o in outcomes]
    for shared in (False, True):
        kind = [r for r in records if r["shared"] == shared and r["accuracy"] is not None]
        if kind:
            max(kind, key=lambda r: r["accuracy"])["best"] = "with 5 % shared" if shared else "without shared data"
    records.sort(key=lambda r: (r["shared"], -(r["accuracy"] or 0.0)))
    found = remedies_table(records)
    return Exhibit("table remedies", found.title, records, found)


def remedies_table(records: Sequence[dict[str, Any]]) -> Table:
    """The remedies for people; the commands of the best are in the caption."""
    columns = [
        Column("best", "best", align="left"),
        Column("remedy", "remedy", align="left"),
        Column("accuracy", "accuracy", ".2%"),
        Column("std", "±", ".2%"),
        Column("seeds", "runs"),
        Column("rounds", "rounds", ",d"),
        Column("algorithm", "algorithm", align="left"),
        Column("lr", "lr", "g"),
    ]
    commands = [f" Best {r['best']}: {r['command']}." for r in records if "best" in r]
    title = "Past the paper: one-class clients, C = 0.05, E = 1"
    return Table(title, columns, records, CAPTION + "".join(commands))


def table(title: str, records: Sequence[dict[str, Any]], caption: str = CAPTION) -> Table:
    """A figure's cells for people, the paper's number beside ours where its text gives one."""
    shown = ("alpha", "C", "E", "algorithm")
    forms = {"alpha": "g", "C": "g"}
    columns = [
        *(Column(key, key, forms.get(key, ""), "left" if key == "algorithm" else "right") for key in shown),
        Column("beta", "beta", "g"),
        Column("lr", "lr", "g"),
        Column("rounds", "rounds", ",d"),
        Column("paper", "paper", ".1%"),
        Column("accuracy", "ours", ".2%"),
        Column("std", "±", ".2%"),
        Column("seeds", "runs"),
        Column("difference", "difference", points),
    ]
    rows = [
        r | {"difference": None if None in (r["accuracy"], r["paper"]) else r["accuracy"] - r["paper"]} for r in records
    ]
    return Table(title, columns, rows, caption)


def _shown(
    name: str, title: str, records: list[dict[str, Any]], drawn: Sequence[tuple[str, Any]], caption: str = CAPTION
) -> Exhibit:
    return Exhibit(name, title, records, table(title, records, caption), tuple(drawn))


def _panel(setting: dict[str, Any]) -> tuple[float, int]:
    """What the paper draws in one panel; the high fractions are sorted first."""
    return -setting["C"], setting["E"]


def _panels(records: Sequence[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """The records of each panel, under its name."""
    keys = sorted(set(map(_panel, records)))
    return [(f"E = {e}, C = {-c:g}", [r for r in records if _panel(r) == (c, e)]) for c, e in keys]


def _points(records: Iterable[dict[str, Any]], x: str, run: Callable[[dict[str, Any]], str]) -> list[dict[str, Any]]:
    return [
        {"x": r[x], "value": r["accuracy"], "run": run(r)}
        | {"low": r["accuracy"] - (r["std"] or 0), "high": r["accuracy"] + (r["std"] or 0)}
        for r in records
        if r["accuracy"] is not None
    ]


def _over_alpha(records: Iterable[dict[str, Any]], run: Callable[[dict[str, Any]], str]) -> Chart:
    return reached.against(_points(records, "alpha", run), x="alpha", steps=SKEWED_TO_THE_RIGHT, level=LEVEL)


def _curve(cell: Cell) -> str:
    return f"alpha = {cell.setting['alpha']:g}" if "alpha" in cell.setting else str(cell.setting["algorithm"])


def _written(o: Outcome) -> str | None:
    return str(o.cell.runs[0].algorithm) if o.decided else None


def _command(o: Outcome) -> str | None:
    """What trains the cell's first run from a shell; None while its rate is not chosen."""
    if not o.decided:
        return None
    run = o.cell.runs[0]
    given = {
        "data": run.data,
        "examples": run.examples,
        "model": None if run.model == "auto" else run.model,
        "partition": run.partition,
        "clients": hsu2019_grid.CLIENTS,
        "algorithm": run.algorithm,
        "share": run.share and str(run.share).removeprefix("share,"),
        "holdout": run.holdout,
        "participation": run.participation,
        "batch": run.batch,
        "weight-decay": run.weight_decay,
        "lr": f"{run.lr:g}",
        "lr-schedule": run.lr_schedule if run.lr_schedule != "constant" else None,
        "rounds": run.rounds,
        "eval-every": run.eval_every,
    }
    flags = [word for key, value in given.items() if value is not None for word in (f"--{key}", str(value))]
    return shlex.join(["fedskew", "train", *flags])


# What can be asked for: the cells it needs, and what is made of them.
EXHIBITS: dict[str, tuple[Callable[[str, hsu2019_grid.Grid], list[Cell]], Callable[[Outcomes], Exhibit]]] = {
    "figure 1": (hsu2019.figure1, exhibit_figure1),
    "figure 2": (hsu2019.figure2, exhibit_figure2),
    "figure 3": (hsu2019.figure3, exhibit_figure3),
    "figure 4": (hsu2019.figure4, exhibit_figure4),
    "figure 5": (hsu2019.figure5, exhibit_figure5),
    "figure 6": (hsu2019.figure6, exhibit_figure6),
    "table remedies": (hsu2019.remedies, exhibit_remedies),
}
DATA = dict.fromkeys(EXHIBITS, hsu2019.COLUMNS)
