"""A grid of runs as a TOML file describes it, and the table of what came of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedskew import measure
from fedskew.errors import FedskewError
from fedskew.report.records import compared
from fedskew.report.tables import Column, Table
from fedskew.run import Run
from fedskew.store import Store

KEYS = ("base", "grid", "runs")
MOST = 10_000  # runs; more are a slip of the pen
UNSEEN = ("name", "seed")  # runs that differ in nothing else are one cell


def parse(document: dict[str, Any]) -> list[Run]:
    """The runs of a file: every combination of its grid, and its single runs, each on top of the base.

    One that is described twice comes once.
    """
    if unknown := [key for key in document if key not in KEYS]:
        raise FedskewError(f"unknown key {unknown[0]!r}: the keys are {', '.join(KEYS)}; a run's own go into [base]")
    base, grid, single = _table(document, "base"), _table(document, "grid"), document.get("runs", [])
    if not isinstance(single, list) or not all(isinstance(entry, dict) for entry in single):
        raise FedskewError(f"runs = {single!r}: it should be a list of tables, each written as [[runs]]")
    if listed := [key for key, value in base.items() if isinstance(value, list)]:
        raise FedskewError(f"base.{listed[0]} = {base[listed[0]]!r}: a list of values goes into [grid]")
    if plain := [key for key, value in grid.items() if not isinstance(value, list)]:
        raise FedskewError(f"grid.{plain[0]} = {grid[plain[0]]!r}: it should be a list of values; one goes into [base]")
    described = [("grid", grid)] if grid or not single else []
    described += [(f"runs[{i}]", entry) for i, entry in enumerate(single)]
    runs: list[Run] = []
    for where, entry in described:
        runs += _product(where, base, entry, MOST - len(runs))
    return list(dict.fromkeys(runs))


def _table(document: dict[str, Any], key: str) -> dict[str, Any]:
    found = document.get(key, {})
    if not isinstance(found, dict):
        raise FedskewError(f"{key} = {found!r}: it should be a table, written as [{key}]")
    return found


def _product(where: str, base: dict[str, Any], entry: dict[str, Any], most: int) -> list[Run]:
    """One run for every combination of the entry's values, those of its last key next to each other."""
    values = {key: value if isinstance(value, list) else [value] for key, value in entry.items()}
    if empty := [key for key, value in values.items() if not value]:
        raise FedskewError(f"{where}.{empty[0]} = []: give at least one value")
    if math.prod(map(len, values.values())) > most:
        raise FedskewError(f"{where} makes more than {MOST:,} runs in all; take values out")
    return [Run(**base | dict(zip(values, chosen, strict=True))) for chosen in itertools.product(*values.values())]


@dataclass(frozen=True)
class Cell:
    """Runs that differ in nothing but their seed."""

    setting: dict[str, Any]  # every key of them but that
    ids: tuple[str, ...]


def cells(runs: Sequence[Run], ids: Sequence[str]) -> list[Cell]:
    """The cells of some runs, in their order."""
    found: dict[tuple[Any, ...], tuple[dict[str, Any], list[str]]] = {}
    for run, id in zip(runs, ids, strict=True):
        setting = _setting(run)
        known = found.setdefault(tuple(setting.values()), (setting, []))[1]
        if id not in known:
            known.append(id)
    return [Cell(setting, tuple(listed)) for setting, listed in found.values()]


def rows(store: Store, found: Sequence[Cell]) -> list[dict[str, Any]]:
    """What the store knows of each cell; only runs that are over count."""
    changing = varied(found)
    return [{key: cell.setting[key] for key in changing} | _outcome(store, cell) for cell in found]


def varied(found: Sequence[Cell]) -> list[str]:
    """The keys in which the cells differ."""
    keys = found[0].setting if found else {}
    return [key for key in keys if any(cell.setting[key] != found[0].setting[key] for cell in found)]


def table(found: Sequence[dict[str, Any]], keys: Sequence[str], title: str) -> Table:
    """The rows for people."""
    columns = [Column(key, key.replace("_", " "), _value, align="left") for key in keys]
    columns += [Column("accuracy", "accuracy", ".1%"), Column("std", "±", ".1%"), Column("seeds", "seeds")]
    columns += [Column("emd", "EMD", ".2f"), Column("seconds", "seconds", ".1f")]
    columns += [Column(key, key) for key in ("diverged", "unfinished") if any(row[key] for row in found)]
    caption = f"Accuracy is the mean of the last {measure.LAST} evaluations and over seeds, with their deviation"
    return Table(title, columns, found, f"{caption}; seconds are one run's.")


def _outcome(store: Store, cell: Cell) -> dict[str, Any]:
    entries = [entry for entry in map(store.find, cell.ids) if entry.over]
    found = compared([store.records(entry.id) for entry in entries], [entry.status for entry in entries], None)
    return {
        **{key: found[key] for key in ("accuracy", "std", "seeds", "emd", "bytes", "seconds", "diverged")},
        "unfinished": len(cell.ids) - len(entries),
        "runs": list(cell.ids),
    }


def _setting(run: Run) -> dict[str, Any]:
    shown = {key: value for key, value in run.spec().items() if key not in UNSEEN}
    shown |= {"partition": str(run.partition), "algorithm": str(run.algorithm)}
    for key in ("share", "warm_up"):
        if value := getattr(run, key):
            shown[key] = str(value).removeprefix(value.kind)[1:]
    return shown | {"clients": getattr(run.partition, "clients", None)}


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
