"""The views of a report on chosen runs: the runs, how they compare, their clients, their drift, skew to accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from fedskew import measure
from fedskew.data.datasets import load_labels
from fedskew.errors import FedskewError
from fedskew.report import charts, population, records
from fedskew.report.chain import chain
from fedskew.report.clients import Holdings, holdings_of
from fedskew.report.groups import Group
from fedskew.report.page import Figure, Section
from fedskew.report.tables import Column, Table, megabytes
from fedskew.sides import Division

TOWARDS = 0.95  # the target, if none is given: this part of the best accuracy
MOST_LINES = 30  # more lines, or more dashes, nobody tells apart
MOST_MAPS = 6  # heat maps
MOST_POPULATIONS = 6
# Points of a whole chart, shared by its lines: together with Vega itself a page stays below 2 MB.
POINTS = 4_000
CELLS = 4_000


def sections(groups: Sequence[Group], target: float | None = None) -> list[Section]:
    """All views; a run that has no row yet is in the first table only."""
    drawn = [group for group in groups if any(group.rows)]
    return [runs(groups), compare(drawn, target), clients(drawn), classes(drawn), drift(drawn), causes(drawn)]


def runs(groups: Sequence[Group]) -> Section:
    """Every run with what it is and how far it got."""
    found = [
        {
            "id": entry.id,
            "run": group.label,
            "status": entry.status,
            "progress": f"{entry.round}/{entry.rounds}",
            "accuracy": entry.accuracy,
            "emd": rows[-1]["emd"] if rows else None,
            "data": entry.data,
            "partition": entry.partition,
            "algorithm": entry.algorithm,
            "remedy": entry.remedy or None,
            "seed": entry.spec.get("seed"),
        }
        for group in groups
        for entry, rows in zip(group.entries, group.rows, strict=True)
    ]
    left = ("id", "run", "status", "data", "partition", "algorithm", "remedy")
    forms = {"accuracy": ".1%", "emd": ".2f"}
    headers = {"emd": "EMD", "progress": "round"}
    keys = list(found[0]) if found else []
    columns = [Column(k, headers.get(k, k), forms.get(k, ""), "left" if k in left else "right") for k in keys]
    caption = "Accuracy on the test set at the last evaluation; EMD of the clients' labels, mean of the last round."
    return Section("Runs", table=Table("Runs", columns, found, caption))


def compare(groups: Sequence[Group], target: float | None = None) -> Section:
    """The table of the groups and their curves."""
    goal = usual_target(groups) if target is None else target
    names = [group.label for group in groups]
    lines, note = _few(groups)
    most = min(POINTS // max(len(lines), 1), records.MOST)
    figures = [
        Figure(
            charts.curves(
                records.curves(lines, "accuracy", most=most),
                y="test accuracy", percent=True, domain=(0, 1), runs=names,
            ),
            "Test accuracy.",
            "accuracy",
            "Click a name to single out its line.",
        ),
        *(
            Figure(
                charts.curves(records.curves(lines, field, most=most), y=f"{label} (cross-entropy)", runs=names),
                caption,
                label.replace(" ", "-"),
            )
            for field, label, caption in (
                ("test_loss", "test loss", "Loss on the test set."),
                ("loss", "training loss", "Mean loss over the round's training examples."),
            )
        ),
    ]  # fmt: skip
    text = (
        "A line is the mean of the runs that differ in their seed only; the band goes from the lowest to the highest."
    )
    return Section("Compare", f"{text} {note}".strip(), comparison(groups, goal), figures)


def comparison(groups: Sequence[Group], target: float | None) -> Table:
    """One row a group, each number a mean over its seeds."""
    caption = f"Accuracy is the mean of the last {measure.LAST} evaluations, ± the standard deviation over seeds"
    caption += f"; the target is {target:.1%}" if target is not None else ""
    caption += "; divergence from matched SGD, relative, last round; traffic counts weights both ways and shared data."
    columns = [
        Column("run", "run", align="left"),
        Column("seeds", "seeds"),
        Column("accuracy", "accuracy", ".1%"),
        Column("std", "±", ".1%"),
        Column("rounds_to_target", "rounds to target", ".0f"),
        Column("emd", "EMD", ".2f"),
        Column("divergence", "divergence", ".1%"),
        Column("bytes", "traffic", megabytes),
        Column("seconds", "seconds", ".1f"),
    ]
    return Table("Compare", columns, records.comparison(groups, target), caption)


def clients(groups: Sequence[Group]) -> Section:
    """Who holds what: bars, EMD and sizes of each different population."""
    found: dict[Any, Group] = {}
    shown: list[tuple[Group, Holdings]] = []
    missing = ""
    for group in groups:
        entry = group.entries[0]
        try:
            division = (entry.data, *(getattr(Division.of(entry.spec), f.name) for f in fields(Division)))
            if division in found or entry.algorithm == "sgd":  # which has no clients
                continue
            found[division] = group
            if len(shown) < MOST_POPULATIONS:
                shown.append((group, holdings_of(entry.spec)))
        except FedskewError as e:
            missing = f"Some clients cannot be shown: {e}."
    figures = []
    for i, (group, held) in enumerate(shown, 1):
        sizes, emd = held.counts.sum(axis=1), held.emd
        about = f"{group.label}, seed {group.seeds[0]}"
        number = f"{len(sizes):,} clients"
        figures += [
            Figure(population.population(held.counts, held.classes), f"{about}: {number}", f"clients-{i}"),
            Figure(
                population.histogram(population.emd_bins(emd), x="EMD of a client's labels"),
                f"{about}: mean EMD {emd.mean():.2f}, largest {emd.max():.2f}",
                f"emd-{i}",
            ),
            Figure(
                population.histogram(population.size_bins(sizes), x="examples of a client"),
                f"{about}: {_range(int(sizes.min()), int(sizes.max()))} examples a client",
                f"sizes-{i}",
            ),
        ]
    text = "One bar a client, one colour a class; shared examples are included."
    if len(found) > len(shown):
        text += f" The first {len(shown)} of {len(found)} populations are shown."
    if not figures:
        text = "" if missing else "None of these runs has clients."
    return Section("Clients", f"{text} {missing}".strip(), figures=figures)


def classes(groups: Sequence[Group]) -> Section:
    """The accuracy of each class over rounds."""
    held = [group for group in groups if any(row["per_class"] for rows in group.rows for row in rows)]
    shown = held[:MOST_MAPS]
    figures = []
    for i, group in enumerate(shown, 1):
        names = _class_names(group)
        number = next(len(row["per_class"]) for rows in group.rows for row in rows if row["per_class"])
        most = max(min(CELLS // (number * len(shown)), records.MOST_COLUMNS), 8)
        chart = charts.per_class(records.per_class(group, names, most=most))
        figures.append(Figure(chart, group.label, f"classes-{i}"))
    if not figures:
        return Section("Classes", "None of these runs recorded the accuracy of each class.")
    text = (
        "Accuracy of each class of the test set, the mean over seeds; dark where the network knows nothing of a class."
    )
    if len(held) > len(shown):
        text += f" The first {len(shown)} of {len(held)} are shown."
    return Section("Classes", text, figures=figures)


def drift(groups: Sequence[Group]) -> Section:
    """Weight divergence by layer over rounds, in both definitions."""
    names = [group.label for group in groups]
    held = [g for g in groups if any(row["divergence"] for rows in g.rows for row in rows)]
    if not held:
        return Section("Drift", "None of these runs measured its weight divergence: train with `--divergence`.")
    lines, note = _few(held)
    figures = []
    for definition, y, caption in DEFINITIONS:
        layers = 1 + len(records.layers_of(lines))
        most = min(max(POINTS // (len(lines) * layers), 12), 300)
        chart = charts.curves(
            records.drift(lines, definition, most=most),
            y=y,
            percent=definition == "relative",
            facet="layer",
            runs=names,
        )
        figures.append(Figure(chart, caption, f"drift-{definition}"))
    absent = f"{len(groups) - len(held)} of {len(groups)} did not measure it." if len(held) < len(groups) else ""
    text = "How far the federated weights are from matched SGD: same start, same number of examples, all clients' data."
    return Section("Drift", " ".join(filter(None, (text, absent, note))), figures=figures)


DEFINITIONS: tuple[tuple[records.Definition, str, str], ...] = (
    ("relative", "weight divergence", "Relative to the norm of SGD's weights (Zhao et al. 2018, Eq. 1)."),
    ("rms", "RMS difference", "Root mean square of the difference (Lahoti et al., Eq. 1)."),
)


def causes(groups: Sequence[Group]) -> Section:
    """EMD, divergence and accuracy of every run, linked."""
    points = records.chain(groups)
    text = "A point is a run: how skewed its clients are, how far its weights are from SGD's, what accuracy it has."
    if not any(point["divergence"] is not None for point in points):
        text += " Without a measured weight divergence there is only the first and the last link of the chain."
    if not points:
        return Section("From skew to accuracy", "None of these runs has been scored yet.")
    hint = "Drag over points in one panel to see the same runs in the others; click beside them to stop."
    figure = Figure(chain(points, runs=[group.label for group in groups]), "", "chain", hint)
    return Section("From skew to accuracy", text, figures=[figure])


def _few(groups: Sequence[Group]) -> tuple[Sequence[Group], str]:
    if len(groups) <= MOST_LINES:
        return groups, ""
    return groups[:MOST_LINES], f"The first {MOST_LINES} of {len(groups)} are drawn."


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def usual_target(groups: Sequence[Group]) -> float | None:
    """95 % of the best; accuracies on different data sets have no common one."""
    if len({entry.data for group in groups for entry in group.entries}) != 1:
        return None
    best = [r["accuracy"] for r in records.comparison(groups) if r["accuracy"] is not None]
    return TOWARDS * max(best) if best else None


def _class_names(group: Group) -> Sequence[str] | None:
    try:
        return load_labels(group.entries[0].data).classes
    except FedskewError:
        return None
