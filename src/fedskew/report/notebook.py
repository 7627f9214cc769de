"""Runs, stored runs, rows and stores as notebooks show them: static HTML and SVG, which need no network."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import altair as alt
import vl_convert

from fedskew.report import charts, theme
from fedskew.report.records import MOST, banded
from fedskew.report.tables import Column, Table
from fedskew.run import Run
from fedskew.store import Entry, Store
from fedskew.store.entry import Records

LAST_ROWS = 5


def html(thing: Run | Entry | Records | Store) -> str:
    """The thing as a piece of HTML; a name in it is text."""
    match thing:
        case Run():
            return _run(thing)
        case Entry():
            return _entry(thing)
        case Records():
            return _records(thing)
        case Store():
            return _store(thing)


def _run(run: Run) -> str:
    return _facts("Run", _in_short(run.spec(), str(run.partition), str(run.algorithm)))


def _entry(entry: Entry) -> str:
    status = f"{entry.status}: {entry.message}" if entry.message else entry.status
    accuracy = None if entry.accuracy is None else f"{entry.accuracy:.1%}"
    about = {"status": status, "round": f"{entry.round} of {entry.rounds}", "accuracy": accuracy}
    about |= {"created": entry.created, "finished": entry.finished}
    return _facts(f"Run {entry.id}", about | _in_short(entry.spec, entry.partition, entry.algorithm))


def _records(records: Records) -> str:
    if not records:
        return "<p>no rows yet</p>"
    pictures = "".join(
        f'<div style="display: inline-block">{_svg(_curve(records, field, label))}</div>'
        for field, label in (("accuracy", "test accuracy"), ("loss", "training loss"))
        if any(record[field] is not None for record in records)
    )
    columns = [
        Column("round", "round"),
        Column("loss", "loss", ".4g"),
        Column("accuracy", "accuracy", ".1%"),
        Column("emd", "EMD", ".2f"),
        Column("clients", "clients"),
        Column("seconds", "seconds", ".3f"),
    ]
    last = Table("", columns, records[-LAST_ROWS:]).html()
    return f"{pictures}<p>The last {min(LAST_ROWS, len(records))} of {len(records)} rows</p>{last}"


def _store(store: Store) -> str:
    keys = ("id", "status", "round", "rounds", "accuracy", "data", "partition", "algorithm", "remedy", "name")
    rows = [{key: getattr(entry, key) for key in keys} for entry in store.runs()]
    numbers = {"accuracy": ".1%", "round": "", "rounds": ""}
    columns = [Column(key, key, numbers.get(key, ""), "right" if key in numbers else "left") for key in keys]
    return f"<p>{escape(str(store.folder))}</p>{Table('', columns, rows).html()}"


def _curve(records: Sequence[Mapping[str, Any]], field: str, label: str) -> alt.TopLevelMixin:
    points = (("run", record["round"], record[field]) for record in records if record[field] is not None)
    percent = field == "accuracy"
    lines = banded(points, MOST)
    return charts.curves(lines, y=label, percent=percent, domain=(0, 1) if percent else None, legend=False)


def _svg(chart: alt.TopLevelMixin) -> str:
    drawing: str = vl_convert.vegalite_to_svg(theme.spec(chart))
    return drawing


def _in_short(spec: Mapping[str, Any], partition: str, algorithm: str) -> dict[str, Any]:
    """A spec with the short strings of what has one."""
    return {**spec, "partition": partition, "clients": spec["partition"].get("clients"), "algorithm": algorithm}


def _facts(title: str, facts: Mapping[str, Any]) -> str:
    written = [
        {"key": key, "value": json.dumps(value) if isinstance(value, dict) else str(value)}
        for key, value in facts.items()
        if value is not None and value != ""
    ]
    columns = [Column("key", title, align="left"), Column("value", "", align="left")]
    return Table(title, columns, written).html()
