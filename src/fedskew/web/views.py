"""What each view shows: charts and tables of chosen runs, from the definitions that reports use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedskew import measure
from fedskew.errors import FedskewError
from fedskew.report import charts, population, records, sharing
from fedskew.report.chain import chain
from fedskew.report.clients import Holdings, holdings_of
from fedskew.report.groups import grouped
from fedskew.report.views import DEFINITIONS, MOST_LINES, comparison, usual_target
from fedskew.store import Entry, Store, live
from fedskew.web.drawing import drawn, told
from fedskew.web.rows import Reader
from fedskew.web.whatif import Split

MOST_RUNS = 60  # compared at once
MOST_DRIFTS = 12  # groups whose layers are drawn
MOST_POINTS = 3_000  # of one chart, shared out among its lines: more marks would make a browser slow
LOSSES = {"test_loss": "test loss", "loss": "training loss"}


def compare(reader: Reader, ids: Sequence[str], target: float | None, loss: str) -> dict[str, Any]:
    """Accuracy and loss over rounds, seeds as bands, and the table of what was reached and what it cost."""
    entries = chosen(reader.store, ids)
    groups = grouped((entry, reader.rows(entry)) for entry in entries[:MOST_RUNS])
    lines = groups[:MOST_LINES]
    goal = usual_target(groups) if target is None else target
    labels, most = [g.label for g in groups], _points(len(lines))

    def curve(field: str) -> list[dict[str, Any]]:
        return reader.lines(lines, field, most, lambda group: records.curves([group], field, most=most))

    accuracy = charts.curves(
        curve("accuracy"), y="test accuracy", percent=True, domain=(0, 1), runs=labels, name="accuracy"
    )
    return {
        "accuracy": drawn(accuracy),
        "loss": drawn(charts.curves(curve(loss), y=f"{LOSSES[loss]} (cross-entropy)", runs=labels, name=loss)),
        "table": told(comparison(groups, goal)),
        "target": goal,
        "usual": target is None,
        "left_out": len(entries[MOST_RUNS:]) + len(groups[MOST_LINES:]),
        "points": most,
        "thinned": any(entry.round > most for entry in entries),
    }


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
    found["prepared"] = live.prepared(reader.store, entry.id)
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
    points = grouped((e, tails[e.id]) for e in entries)
    dots, labels = records.chain(points), [g.label for g in points]
    measured = [e for e in entries if ids and e.spec.get("divergence")]
    groups = grouped((e, reader.rows(e, "divergence")) for e in measured[:MOST_RUNS])[:MOST_DRIFTS]
    found: dict[str, Any] = {
        "chain": drawn(chain(dots, runs=labels)) if dots else None,
        "runs": len(dots),
        "measured": sum(d["divergence"] is not None for d in dots),
    }
    for definition, y, _ in DEFINITIONS:
        most = _points(len(groups) * (1 + len(records.layers_of(groups))), least=40)
        lines = records.drift(groups, definition, most=most)
        chart = charts.curves(
            lines, y=y, percent=definition == "relative", facet="layer", runs=labels, name=f"drift_{definition}"
        )
        found[definition] = drawn(chart) if lines else None
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


def _points(lines: int, least: int = 100) -> int:
    return max(least, min(records.MOST, MOST_POINTS // max(lines, 1)))
