"""Cells on their way to another machine: their runs, and the checkpoints that will be trained on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from fedskew.papers.protocol import Cell
from fedskew.reproduce import search
from fedskew.reproduce.cells import outcomes
from fedskew.store import Store, archive
from fedskew.store.entry import Entry


def pack(
    store: Store, cells: Sequence[Cell], path: Path, piece: int | None = None, most: int | None = None
) -> list[Path]:
    """Write the cells' runs to an archive, in pieces of at most `piece` bytes and of about `most` bytes in all.

    A candidate that has lost its search is never trained again and goes without its weights. Where not all other
    checkpoints fit, those of the runs that got furthest do; the rest begin again, which costs time and nothing else.
    """
    ahead, behind = _runs(store, cells)
    ids = [entry.id for entry in [*ahead, *behind]]
    bare = {entry.id for entry in behind}
    if most is not None:
        archive.pack(store, ids, path, bare=ids)
        room = most - path.stat().st_size
        for entry in sorted(ahead, key=lambda entry: -entry.round):
            size = sum(kept["bytes"] for kept in store.checkpoints(entry.id)[:1])
            if size > room:
                bare.add(entry.id)
            else:
                room -= size
    archive.pack(store, ids, path, bare=bare)
    return archive.cut(path, piece) if piece else [path]


def _runs(store: Store, cells: Sequence[Cell]) -> tuple[list[Entry], list[Entry]]:
    """Of the cells' runs that the store has: those to be trained further, and those that are over or have lost."""
    found: dict[str, Entry] = {}
    ahead: set[str] = set()
    for each in search.searches(cells):
        now = search.standing(store, each)
        for run in each.candidates:
            if entry := store.same(run):
                found[entry.id] = entry
                if now.best is None and run in now.alive:
                    ahead.add(entry.id)
    for outcome in outcomes(store, cells):
        for id in filter(None, outcome.ids):
            found[id] = store.find(id)
            ahead.add(id)
    ahead = {id for id in ahead if not found[id].over}
    return [found[id] for id in found if id in ahead], [found[id] for id in found if id not in ahead]


def searched(store: Store, cells: Sequence[Cell]) -> Iterator[str]:
    """What every search of the cells has found, the best first, for people who read logs."""
    for each in search.searches(cells):
        now = search.standing(store, each)
        first = each.candidates[0]
        where = f"{first.partition}, C {first.participation:g}, E {first.epochs}, {len(each.candidates)} candidates"
        ranked = sorted(now.scores.items(), key=lambda item: (-item[1][0], -item[1][1]))[:8]
        told = "; ".join(f"{r.algorithm} lr {r.lr:g} {score:.4f} at {rung}" for r, (rung, score) in ranked)
        yield f"search {where}: {'chosen' if now.best else 'so far'} {told or 'nothing'}"
