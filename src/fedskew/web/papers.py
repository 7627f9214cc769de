"""The papers' tables and figures from what the store holds, the published numbers beside ours."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from fedskew.errors import FedskewError
from fedskew.store import Entry, Store
from fedskew.web import drawing

if TYPE_CHECKING:
    from fedskew.papers.protocol import Cell

MOST_SEEDS = 10


@cache
def listed() -> list[dict[str, Any]]:
    """Every paper with the names of its exhibits and its scales."""
    from fedskew.reproduce.request import PAPERS, Request  # which needs torch, and the first page does not

    found = []
    for paper in PAPERS:
        scales = importlib.import_module(f"fedskew.papers.{paper}").SCALES
        request = Request.of(paper, (), None, "full", None)
        found.append({"paper": paper, "title": request.title, "exhibits": list(request.names), "scales": list(scales)})
    return found


def exhibit(store: Store, paper: str, name: str, scale: str) -> dict[str, Any]:
    """One table or figure; without a scale, that of which the store holds most."""
    from fedskew.reproduce.request import Request

    known = {p["paper"]: p for p in listed()}
    if paper not in known:
        raise FedskewError(f"paper {paper!r} is not known: choose one of {', '.join(known)}")
    entries = store.runs()
    requests = {
        s: Request.of(paper, (name,), None, s, _seeds(entries)) for s in ([scale] if scale else known[paper]["scales"])
    }
    held = {(e.data, e.partition, e.rounds) for e in entries}
    # of two scales that hold as much, the larger one, which comes last
    chosen = max(reversed(requests), key=lambda s: _held(requests[s].cells(name), held)) if len(requests) > 1 else scale
    shown, outcomes = requests[chosen].exhibit(store, name)
    kind, _, number = name.partition(" ")
    return {
        "name": shown.name,
        "title": shown.title,
        "scale": chosen,
        "cells": len(outcomes),
        "trained": sum(bool(outcome.accuracies) for outcome in outcomes),
        "table": drawing.told(shown.table) if shown.table else None,
        "charts": [{"caption": caption, "chart": drawing.drawn(chart)} for caption, chart in shown.charts],
        "command": f"fedskew reproduce {paper} --{kind} {number} --scale {chosen}",
    }


def _held(cells: Sequence[Cell], held: set[tuple[str, str, int]]) -> int:
    """How many of the cells may have runs in the store, told from a few keys alone."""
    return sum(any((r.data, str(r.partition), r.rounds) in held for r in cell.last) for cell in cells)


def _seeds(entries: Sequence[Entry]) -> int | None:
    """As many as the store has of anything: those of a cell that are not there are left out of its mean."""
    most = max((int(entry.spec.get("seed", 0)) for entry in entries), default=0)
    return min(most + 1, MOST_SEEDS) if most else None
