"""Rows as charts need them, read once: of a run that trains only what is new is read again."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fedskew.report.groups import Group, Rows
from fedskew.store import Entry, Store, live

KEPT = 64  # runs
KEPT_LINES = 256

PLAIN = ("accuracy", "loss", "test_loss", "emd", "examples", "bytes_up", "bytes_down", "seconds")
NESTED = ("divergence", "per_class")


@dataclass
class _Known:
    status: str
    round: int
    rows: list[dict[str, Any]]


class Reader:
    """The rows of runs of one store: the plain numbers, and what is nested only where it is asked for."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._known: OrderedDict[tuple[str, str], _Known] = OrderedDict()
        self._lines: OrderedDict[tuple[Any, ...], list[dict[str, Any]]] = OrderedDict()
        self._lock = threading.Lock()

    def rows(self, entry: Entry, nested: str = "") -> Rows:
        """Those of a run up to its present round; the list is shared and must not be changed."""
        with self._lock:
            known = self._known.pop((entry.id, nested), None)
            # a run that goes on after a stop begins at its checkpoint, before its last row
            if known is None or known.status != entry.status or known.round > entry.round:
                known = _Known(entry.status, -1, [])
            if entry.round > known.round or not known.rows:
                keys = (*PLAIN, nested or "divergence.relative.total")
                fresh = live.columns(self.store, entry.id, keys, after=known.round)
                known.rows = known.rows + [_row(values, nested) for values in fresh]
                known.round = known.rows[-1]["round"] if known.rows else -1
            self._known[entry.id, nested] = known
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
            return known.rows

    def lines(
        self, groups: Sequence[Group], what: str, most: int, make: Callable[[Group], list[dict[str, Any]]]
    ) -> list[dict[str, Any]]:
        """The records that `make` gives for each group; only a group with new rows is made again."""
        found: list[dict[str, Any]] = []
        for group in groups:
            key = (what, most, group.label, *((e.id, e.status, e.round) for e in group.entries))
            with self._lock:
                records = self._lines.pop(key, None)
            if records is None:
                records = make(group)
            with self._lock:
                self._lines[key] = records
                while len(self._lines) > KEPT_LINES:
                    self._lines.popitem(last=False)
            found += records
        return found


def _row(values: Sequence[Any], nested: str) -> dict[str, Any]:
    round, *plain, last = values
    row = {"round": round, "divergence": None, "per_class": None, **dict(zip(PLAIN, plain, strict=True))}
    if last is not None:
        row[nested or "divergence"] = json.loads(last) if nested else {"relative": {"total": last, "layers": {}}}
    for key in ("examples", "bytes_up", "bytes_down", "seconds"):
        row[key] = row[key] or 0  # a round that diverged
    return row
