"""Cells on their way to another machine: their runs, and the checkpoints that will be trained on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from fedskew.papers.protocol import Cell
from fedskew.reproduce import search
from fedskew.reproduce.cells import begun, outcomes
from fedskew.store import Store, archive
from fedskew.store.entry import Entry


def pack(
    store: Store, cells: Sequence[Cell], path: Path, piece: int | None = None, most: int | None = None
) -> list[Path]:
    """Write the cells' runs to an archive, in pieces of at most `piece` bytes and of about `most` bytes in all.

    A candidate that has lost its search is never trained again and goes without its weights. Where not all other
    checkpoints fit, those of the runs that got furthest do; the rest begin again, which costs time and nothing else.
    """
    runs, needed = _runs(store, cells)
    if most is not None:
        archive.pack(store, list(runs), path, checkpoints=())
        room = most - path.stat().st_size
        for id in sorted(needed, key=lambda id: -runs[id].round):
            size = sum(kept["bytes"] for kept in store.checkpoints(id)[:1])
            if size > room:
                needed.discard(id)
            else:
                room -= size
    archive.pack(store, list(runs), path, checkpoints=needed)
    return archive.cut(path, piece) if piece else [path]


def _runs(store: Store, cells: Sequence[Cell]) -> tuple[dict[str, Entry], set[str]]:
    """The cells' runs that the store has, and of which of them someone will want the last weights."""
    found: dict[str, Entry] = {}
    needed: set[str] = set()
    for each in search.searches(cells):
        now = search.standing(store, each)
        for run in each.candidates:
            if entry := store.same(run):
                found[entry.id] = entry
                if now.best is None and run in now.alive:
                    needed.add(entry.id)
    for outcome in outcomes(store, cells):
        for id in filter(None, outcome.ids):
            found[id] = store.find(id)
            needed.add(id)
    needed = {id for id in needed if not found[id].over}
    for cell in cells:
        for before, after in zip(cell.runs, begun(store, cell), strict=True) if cell.after else ():
            if entry := store.same(before):
                found[entry.id] = entry
                follower = after and store.same(after)
                if not (follower and follower.over):
                    needed.add(entry.id)
    return found, needed


def searched(store: Store, cells: Sequence[Cell]) -> Iterator[str]:
    """What every search of the cells has found, the best first, for people who read logs."""
    for each in search.searches(cells):
        now = search.standing(store, each)
        first = each.candidates[0]
        where = f"{first.partition}, C {first.participation:g}, E {first.epochs}, {len(each.candidates)} candidates"
        ranked = sorted(now.scores.items(), key=lambda item: (-item[1][0], -item[1][1]))[:8]
        told = "; ".join(f"{r.algorithm} lr {r.lr:g} {score:.4f} at {rung}" for r, (rung, score) in ranked)
        yield f"search {where}: {'chosen' if now.best else 'so far'} {told or 'nothing'}"
