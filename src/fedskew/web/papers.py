"""The papers' tables and figures from what the store holds, the published numbers beside ours."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from fedskew.errors import FedskewError
from fedskew.store import Store
from fedskew.web import drawing

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
    known = {p["paper"]: p for p in listed()}
    if paper not in known:
        raise FedskewError(f"paper {paper!r} is not known: choose one of {', '.join(known)}")
    scales = [scale] if scale else list(reversed(known[paper]["scales"]))  # of two that hold as much, the larger one
    found = [_exhibit(store, paper, name, s) for s in scales]
    return max(found, key=lambda e: e["trained"])


def _exhibit(store: Store, paper: str, name: str, scale: str) -> dict[str, Any]:
    from fedskew.reproduce.cells import outcomes
    from fedskew.reproduce.request import Request

    request = Request.of(paper, (name,), None, scale, _seeds(store))
    (shown,) = request.exhibits(store)
    kind, _, number = name.partition(" ")
    done = [bool(o.accuracies) for o in outcomes(store, request.cells(name))]
    return {
        "name": shown.name,
        "title": shown.title,
        "scale": scale,
        "cells": len(done),
        "trained": sum(done),
        "table": drawing.told(shown.table) if shown.table else None,
        "charts": [{"caption": caption, "chart": drawing.drawn(chart)} for caption, chart in shown.charts],
        "command": f"fedskew reproduce {paper} --{kind} {number} --scale {scale}",
    }


def _seeds(store: Store) -> int | None:
    """As many as the store has of anything: those of a cell that are not there are left out of its mean."""
    most = max((int(entry.spec.get("seed", 0)) for entry in store.runs()), default=0)
    return min(most + 1, MOST_SEEDS) if most else None
