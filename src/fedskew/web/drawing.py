"""Charts and tables as the page takes them: drawing and records apart, so that new records need no new drawing."""

from __future__ import annotations

import csv as comma
import io
import json
from typing import Any

import altair as alt

from fedskew.report import theme
from fedskew.report.tables import Table


def drawn(chart: alt.TopLevelMixin | None) -> dict[str, Any] | None:
    """{"spec": ..., "data": {name: records}}; None where there is nothing to draw.

    As long as `spec` stays the same, a page replaces records in the view that it has (no flicker, no new axes).
    """
    if chart is None:
        return None
    spec = theme.spec(chart, ink="currentColor", paper="transparent", validate=False)
    data: dict[str, list[Any]] = spec.pop("datasets", {})
    _take(spec, data)
    return {"spec": spec, "data": data} if any(data.values()) else None


def _take(part: Any, data: dict[str, list[Any]]) -> None:
    if isinstance(part, dict):
        source = part.get("data")
        if isinstance(source, dict) and "values" in source:
            values = source["values"]
            name = source.get("name") or next((n for n, v in data.items() if v == values), f"records{len(data)}")
            data[name] = values
            part["data"] = {"name": name}
        for value in part.values():
            _take(value, data)
    elif isinstance(part, list):
        for value in part:
            _take(value, data)


def told(table: Table) -> dict[str, Any]:
    """A table for the page, with its text to copy; a row without a number of ours is marked."""
    return {
        "title": table.title,
        "columns": [{"header": c.header, "align": c.align, "key": c.key} for c in table.columns],
        "rows": table.cells(),
        "missing": [row.get("ours", ...) is None for row in table.rows],
        "caption": table.caption,
        "markdown": table.markdown(),
        "csv": csv(table),
    }


def csv(table: Table) -> str:
    """The raw numbers of a table, a header first."""
    text = io.StringIO()
    writer = comma.writer(text, lineterminator="\n")
    writer.writerow([c.key for c in table.columns])
    writer.writerows([_shielded(v) for v in record.values()] for record in table.records())
    return text.getvalue()


def _shielded(value: Any) -> Any:
    """A spreadsheet takes a text that begins so for a formula; a name must stay a name."""
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
