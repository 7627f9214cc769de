"""Rows of stored runs as the plain records that charts and tables are drawn from."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedskew import measure
from fedskew.report.groups import Group, Record, Rows

MOST = 1_000  # points of a line: no screen shows more
MOST_COLUMNS = 120  # rounds of a heat map
MOST_LAYERS = 11  # panels, beside the one for all of them
ALL_LAYERS = "all layers"
Definition = Literal["relative", "rms"]


def banded(points: Iterable[tuple[str, int, float]], most: int | None = None) -> list[dict[str, Any]]:
    """(run, round, value) of several seeds as mean and range: one record for each run and round, `most` a run."""
    found: dict[str, dict[int, list[float]]] = {}
    for run, round, value in points:
        if math.isfinite(value):  # a round that diverged is a gap
            found.setdefault(run, {}).setdefault(round, []).append(value)
    return [
        {
            "run": run,
            "round": round,
            "value": _mean(values),
            "low": min(values),
            "high": max(values),
            "seeds": len(values),
        }
        for run, rounds in found.items()
        for round, values in _thinned(sorted(rounds.items()), most)
    ]


def _thinned(line: list[tuple[int, list[float]]], most: int | None) -> list[tuple[int, list[float]]]:
    if most is None or len(line) <= most:
        return line
    bands = [[_mean(values), min(values), max(values)] for _, values in line]
    return [line[i] for i in telling(np.array(bands), most)]


def telling(bands: NDArray[np.float64], most: int) -> list[int]:
    """The points (value, low, high) that draw a line: its ends, and the extremes of line and band in each stretch.

    As M4 does for a line in columns of pixels (Jugel et al. 2014, "M4: a visualization-oriented time series data
    aggregation"): no peak is lost, and every point is one that was measured.
    """
    line, low, high = bands.T
    kept = {0, len(bands) - 1}
    for part in np.array_split(np.arange(len(bands)), max((most - 2) // 4, 1)):
        extremes = (line[part].argmin(), line[part].argmax(), low[part].argmin(), high[part].argmax())
        kept |= {int(part[i]) for i in extremes}
    return sorted(kept)


def curves(groups: Iterable[Group], field: str = "accuracy", *, most: int = MOST) -> list[dict[str, Any]]:
    """A field of the rows over rounds (accuracy, test_loss, loss): mean and range of each group's seeds."""
    return [r for group in groups for r in _line(group, lambda row: row[field], most)]


def drift(groups: Sequence[Group], definition: Definition = "relative", *, most: int = 300) -> list[dict[str, Any]]:
    """Weight divergence over rounds, of all weights and of each layer; nothing for runs that did not measure it."""
    return [
        record | {"layer": layer}
        for layer in (ALL_LAYERS, *layers_of(groups))
        for group in groups
        for record in _line(group, partial(_divergence, definition=definition, layer=layer), most)
    ]


def layers_of(groups: Iterable[Group]) -> list[str]:
    """The layers whose divergence was measured; of more than eleven, eleven from the first to the last."""
    rows = (row for group in groups for each in group.rows for row in each[-1:] if row["divergence"])
    names = list(dict.fromkeys(layer for row in rows for layer in row["divergence"]["rms"]["layers"]))
    return [names[i] for i in evenly(len(names), MOST_LAYERS)]


def evenly(number: int, most: int) -> list[int]:
    """At most so many of range(number), the first and the last among them."""
    return [round(i * (number - 1) / max(min(number, most) - 1, 1)) for i in range(min(number, most))]


def per_class(group: Group, classes: Sequence[str] | None = None, *, most: int = MOST_COLUMNS) -> list[dict[str, Any]]:
    """Accuracy of each class over rounds, the mean of the seeds; each evaluation lasts `until` the next one."""
    found: dict[int, list[Sequence[float]]] = {}
    for rows in group.rows:
        for row in rows:
            if row["per_class"] is not None:
                found.setdefault(row["round"], []).append(row["per_class"])
    rounds = sorted(found)
    picked = [rounds[i] for i in evenly(len(rounds), most)]
    step = picked[-1] - picked[-2] if len(picked) > 1 else 1
    return [
        {
            "run": group.label,
            "class": classes[c] if classes and c < len(classes) else str(c),
            "rank": c,
            "round": round,
            "until": until,
            "accuracy": math.fsum(scores) / len(scores),
        }
        for round, until in zip(picked, [*picked[1:], *(r + step for r in picked[-1:])], strict=True)
        for c, scores in enumerate(zip(*found[round], strict=True))
        if all(map(math.isfinite, scores))  # a class that the test set does not hold has no accuracy
    ]


def chain(groups: Iterable[Group]) -> list[dict[str, Any]]:
    """EMD, divergence and accuracy of every run that has been scored: the papers' causal chain, a point a run."""
    found = []
    for group in groups:
        for entry, rows in zip(group.entries, group.rows, strict=True):
            if (accuracy := settled(rows, entry.status)) is None:
                continue
            found.append(
                {
                    "run": group.label,
                    "id": entry.id,
                    "seed": entry.spec.get("seed", 0),
                    "algorithm": entry.algorithm,
                    "data": entry.data,
                    "emd": rows[-1]["emd"],
                    "divergence": last_divergence(rows),
                    "accuracy": accuracy,
                }
            )
    return found


def settled(rows: Rows, status: str = "") -> float | None:
    """A run's accuracy, the mean of its last evaluations; one that diverged has earned nothing."""
    scores = [row["accuracy"] for row in rows if row["accuracy"] is not None]
    if status == "diverged":
        return 0.0
    return measure.settled(scores) if scores else None


def last_divergence(rows: Rows, definition: Definition = "relative") -> float | None:
    """The weight divergence of all layers in the last round that measured it."""
    found = (_divergence(row, definition) for row in reversed(rows))
    return next((value for value in found if value is not None and math.isfinite(value)), None)


def rounds_to(rows: Rows, target: float | None) -> int | None:
    """The first round whose accuracy is at least the target."""
    if target is None:
        return None
    return next((row["round"] for row in rows if row["accuracy"] is not None and row["accuracy"] >= target), None)


def compared(rows: Sequence[Rows], statuses: Sequence[str], target: float | None) -> dict[str, Any]:
    """What several seeds of one run reached and what they cost, each number a mean over the seeds."""
    scores = [s for s in map(settled, rows, statuses) if s is not None]
    reached = [rounds_to(r, target) for r in rows]
    drifts = [d for d in map(last_divergence, rows) if d is not None]
    return {
        "accuracy": _mean(scores),
        "std": statistics.stdev(scores) if len(scores) > 1 else None,
        "rounds_to_target": None if None in reached else _mean([r for r in reached if r is not None]),
        "bytes": _mean([sum(r["bytes_up"] + r["bytes_down"] for r in each) for each in rows]),
        "seconds": _mean([math.fsum(r["seconds"] for r in each) for each in rows]),
        "emd": next((each[-1]["emd"] for each in rows if each), None),
        "divergence": _mean(drifts),
        "examples": _mean([sum(r["examples"] for r in each) for each in rows]),
        "target": target,
        "seeds": len(rows),
        "diverged": sum(status == "diverged" for status in statuses),
    }


def comparison(groups: Iterable[Group], target: float | None = None) -> list[dict[str, Any]]:
    """The rows of the comparison table, in the order of the groups."""
    found = []
    for group in groups:
        first, statuses = group.entries[0], [entry.status for entry in group.entries]
        about = {
            "run": group.label,
            "ids": [entry.id for entry in group.entries],
            "data": first.data,
            "partition": first.partition,
            "algorithm": first.algorithm,
            "remedy": first.remedy or None,
            "lr": first.spec.get("lr"),
            "round": min(entry.round for entry in group.entries),
            "rounds": first.rounds,
            "status": ", ".join(dict.fromkeys(statuses)),
        }
        found.append(about | compared(group.rows, statuses, target))
    return found


def _line(group: Group, value: Callable[[Record], float | None], most: int) -> list[dict[str, Any]]:
    points = ((group.label, row["round"], value(row)) for rows in group.rows for row in rows)
    return banded(((run, round, v) for run, round, v in points if v is not None), most)


def _divergence(row: Record, definition: Definition, layer: str = ALL_LAYERS) -> float | None:
    if row["divergence"] is None:
        return None
    found: Mapping[str, Any] = row["divergence"][definition]
    value: float | None = found["total"] if layer == ALL_LAYERS else found["layers"].get(layer)
    return value


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
