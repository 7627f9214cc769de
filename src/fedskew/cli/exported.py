"""A run as text for other programs: CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from typing import Any


def to_csv(records: list[dict[str, Any]]) -> str:
    """One line a round; nested values get dotted columns: divergence.relative.total, per_class.0."""
    flat = [dict(_flat("", record)) for record in records]
    found = dict.fromkeys(column for row in flat for column in row)
    # a value that is sometimes missing as a whole has no column of its own beside those of its parts
    columns = [c for c in found if not any(other.startswith(f"{c}.") for other in found)]
    order = list(records[0]) if records else []
    columns.sort(key=lambda column: order.index(column.partition(".")[0]))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def to_json(document: dict[str, Any]) -> str:
    """The document as `--json` prints it; NaN has no place in JSON and becomes null."""
    return json.dumps(json.loads(json.dumps(document), parse_constant=lambda _: None), indent=2) + "\n"


def _flat(name: str, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, (dict, list)):
        return [(name, value)]
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    return [pair for key, part in parts for pair in _flat(f"{name}.{key}" if name else str(key), part)]
