"""What each view shows: charts and tables of chosen runs, from the definitions that reports use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedskew import measure
from fedskew.errors import FedskewError
from fedskew.report import chain as chained
from fedskew.report import charts, population, records, sharing
from fedskew.report.clients import Holdings, holdings_of
from fedskew.report.groups import Group, grouped
from fedskew.report.tables import Column, Table
from fedskew.store import Entry, Store, live
from fedskew.web.drawing import drawn, told
from fedskew.web.rows import Reader
from fedskew.web.whatif import Split

MOST_RUNS = 60  # compared at once: more lines than eyes can follow
MOST_LAYERS = 12  # groups whose layers are drawn
MOST_POINTS = 3_000  # of one chart, shared out among its lines
USUAL = 0.95  # the target, if none is given: this part of the best accuracy
EQUATIONS = {
    "relative": ("weight divergence ‖w − w(SGD)‖ / ‖w(SGD)‖", True),
    "rms": ("root mean square of w − w(SGD)", False),
}


def compare(reader: Reader, ids: Sequence[str], target: float | None) -> dict[str, Any]:
    """Accuracy and loss over rounds, seeds as bands, and the table of what was reached and what it cost."""
    entries = chosen(reader.store, ids)
    groups = grouped((entry, reader.rows(entry)) for entry in entries[:MOST_RUNS])
    labels, most = [g.label for g in groups], _points(len(groups))
    if target is None:
        scores = [records.settled(rows, e.status) for g in groups for e, rows in zip(g.entries, g.rows, strict=True)]
        best = max((s for s in scores if s is not None), default=None)
        goal = None if best is None else USUAL * best
    else:
        goal = target
    accuracy = records.curves(groups, "accuracy", most=most)
    losses = {field: records.curves(groups, field, most=most) for field in ("test_loss", "loss")}
    return {
        "accuracy": drawn(
            charts.curves(accuracy, y="test accuracy", percent=True, domain=(0, 1), runs=labels, name="accuracy")
        ),
        "test_loss": drawn(charts.curves(losses["test_loss"], y="test loss", runs=labels, name="test_loss")),
        "loss": drawn(charts.curves(losses["loss"], y="training loss", runs=labels, name="loss")),
        "table": told(comparison(groups, goal)),
        "target": goal,
        "usual": target is None,
        "left_out": max(0, len(entries) - MOST_RUNS),
        "points": most,
        "thinned": any(entry.round > most for entry in entries),
    }


def comparison(groups: Sequence[Group], target: float | None) -> Table:
    """A line a group, the best first."""
    rows = sorted(records.comparison(groups, target), key=lambda r: -(r["accuracy"] or 0.0))
    aim = "" if target is None else f"; the target is {target:.1%}"
    return Table(
        "Comparison",
        [
            Column("run", "run", align="left"),
            Column("emd", "EMD", ".3f"),
            Column("accuracy", "accuracy", ".2%"),
            Column("std", "±", ".2%"),
            Column("seeds", "seeds"),
            Column("rounds_to_target", "rounds to target", ".0f"),
            Column("divergence", "weight divergence", ".1%"),
            Column("bytes", "traffic", lambda b: f"{b / 1e6:,.1f} MB"),
            Column("seconds", "time", lambda s: f"{s:,.1f} s"),
            Column("round", "round"),
            Column("status", "state", align="left"),
        ],
        rows,
        f"Accuracy is the mean of the last {measure.LAST} evaluations and of the seeds{aim}; traffic counts weights "
        "both ways and shared data once.",
    )


def clients(reader: Reader, id: str) -> dict[str, Any]:
    """Who holds what in a run, and how well each class is known over rounds."""
    (entry,) = chosen(reader.store, [id])
    (group,) = grouped([(entry, reader.rows(entry, "per_class"))])
    found: dict[str, Any] = {"run": group.label, "error": None, "population": None, "emd": None, "sizes": None}
    names: tuple[str, ...] | None = None
    try:
        held = holdings_of(entry.spec)
    except FedskewError as e:  # the data set is not on this machine; what was measured is still there
        found["error"] = str(e)
    else:
        names = held.classes
        found |= holdings(held) | {"facts": facts(held)}
    prepared = next((r["prepared"] for r in reader.store.records(id)[:1] if r.get("prepared")), None)
    found["prepared"] = prepared
    found["per_class"] = drawn(charts.per_class(records.per_class(group, names)))
    return found


def holdings(held: Holdings) -> dict[str, Any]:
    """The population drawn: stacked bars, the spread of EMD and of sizes."""
    sizes = held.counts.sum(axis=1)
    return {
        "population": drawn(population.population(held.counts, held.classes)),
        "emd": drawn(population.histogram(population.emd_bins(held.emd), x="EMD of a client's labels", name="emd")),
        "sizes": drawn(population.histogram(population.size_bins(sizes), x="examples of a client", name="sizes")),
    }


def facts(held: Holdings) -> dict[str, Any]:
    """The population in numbers."""
    sizes, emd = held.counts.sum(axis=1), held.emd
    return {
        "clients": len(held.counts),
        "examples": int(sizes.sum()),
        "emd": float(emd.mean()),
        "emd_max": float(emd.max()),
        "smallest": int(sizes.min()),
        "largest": int(sizes.max()),
        "effective_classes": float(np.mean(measure.effective_classes(held.counts[sizes > 0]))),
        "classes": len(held.classes),
    }


def drift(reader: Reader, ids: Sequence[str]) -> dict[str, Any]:
    """EMD against divergence against accuracy of all runs, or of the chosen ones; divergence by layer of the chosen."""
    store = reader.store
    entries = chosen(store, ids) if ids else store.runs()
    tails = live.tails(store, [e.id for e in entries], measure.LAST)
    dots = records.chain(grouped((e, tails[e.id]) for e in entries))
    picked = [e for e in entries if ids and e.spec.get("divergence")]
    groups = grouped((e, reader.rows(e, "divergence")) for e in picked[:MOST_RUNS])[:MOST_LAYERS]
    labels = [g.label for g in groups]
    found: dict[str, Any] = {
        "chain": drawn(chained.chain(dots, runs=labels)),
        "runs": len(dots),
        "measured": sum(d["divergence"] is not None for d in dots),
        "left_out": max(0, len(picked) - MOST_RUNS),
    }
    for definition, (words, percent) in EQUATIONS.items():
        lines = records.drift(groups, definition, most=_points(6 * len(groups)))  # type: ignore[arg-type]
        name = f"drift_{definition}"
        found[definition] = drawn(charts.curves(lines, y=words, percent=percent, facet="layer", runs=labels, name=name))
    return found


def whatif(split: Split) -> dict[str, Any]:
    """The population that was asked for, its EMD before and after sharing, what that sends."""
    return {
        "facts": split.facts,
        "population": drawn(population.population(split.counts, split.classes)),
        "emd": drawn(sharing.before_and_after(split.before, split.after)),
        "sizes": drawn(
            population.histogram(population.size_bins(split.counts.sum(axis=1)), x="examples of a client", name="sizes")
        ),
    }


def chosen(store: Store, ids: Sequence[str]) -> list[Entry]:
    """The runs with these ids in their order; one that is gone is left out."""
    known = {entry.id: entry for entry in store.runs()}
    found = [known[id] for id in ids if id in known]
    if ids and not found:
        raise FedskewError(f"no run {ids[0]} in {store.folder}; it was deleted, or the store has moved")
    return found


def _points(lines: int) -> int:
    return max(100, min(records.MOST, MOST_POINTS // max(lines, 1)))
