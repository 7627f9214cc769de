"""Searches over learning rates and methods: which candidates train next, to which round, and who has won.

All of it is read from the store's rows, so that a search which was cut off goes on where it was.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from fedskew import measure
from fedskew.papers.protocol import Cell, Search
from fedskew.run import Run
from fedskew.store import Store
from fedskew.store.entry import Entry

LATE = 2 / 3  # a rung is judged by its evaluations after this part of its rounds: noise is averaged, the start is not


@dataclass(frozen=True)
class Standing:
    """Where a search is: who is still in, the round that they are brought to, and the best once there is one."""

    alive: tuple[Run, ...]
    until: int
    best: Run | None
    scores: dict[Run, tuple[int, float]]  # of every candidate: the last rung that it reached and its accuracy there


def standing(store: Store, search: Search) -> Standing:
    """Rung by rung as far as the store's rows go."""
    alive, scores = search.candidates, dict[Run, tuple[int, float]]()
    for rung in search.rungs:
        if scores and len(alive) == 1:  # whoever is left alone has won
            break
        found = {run: _score(store, store.same(run), rung) for run in alive}
        if None in found.values():
            return Standing(alive, rung, None, scores)
        scores |= {run: (rung, score) for run, score in found.items() if score is not None}
        ranked = sorted(alive, key=lambda run: -scores[run][1])  # sorted keeps the order of equals: the first listed
        alive = tuple(ranked[: search.survivors(len(ranked))])
    return Standing(alive, search.rungs[-1], max(alive, key=lambda run: scores[run][1]), scores)


def _score(store: Store, entry: Entry | None, rung: int) -> float | None:
    """Validation accuracy about a round; a run that has diverged earned nothing; None: it is not there yet."""
    if entry is not None and entry.status == "diverged":
        return 0.0
    if entry is None or entry.round < rung:
        return None
    late = [accuracy for round, accuracy in store.evaluations(entry.id) if LATE * rung < round <= rung]
    return statistics.fmean(late[-measure.LAST :])


def searches(cells: Iterable[Cell]) -> list[Search]:
    """Each once."""
    return list(dict.fromkeys(cell.search for cell in cells if cell.search))


def steps(store: Store, cells: Sequence[Cell]) -> Iterator[tuple[int, list[Run]]]:
    """(round, candidates to be brought there), the nearest round first, until every search is decided.

    Whoever asks for the next step has trained the last: candidates of all cells at one rung train together.
    """
    while True:
        ahead: dict[int, list[Run]] = {}
        for search in searches(cells):
            now = standing(store, search)
            if now.best is None:
                ahead.setdefault(now.until, []).extend(now.alive)
        if not ahead:
            return
        until = min(ahead)
        yield until, list(dict.fromkeys(ahead[until]))


def left(store: Store, search: Search) -> dict[Run, int]:
    """Rounds still to be trained, by candidate; of those who will go on only the number is known, so the first do."""
    now = standing(store, search)
    if now.best is not None:
        return {}
    found: dict[Run, int] = {}
    for run in now.alive:
        stored = store.same(run)
        found[run] = 0 if stored and stored.over else max(0, now.until - (stored.round if stored else 0))
    number, before = len(now.alive), now.until
    for rung in search.rungs[search.rungs.index(now.until) + 1 :]:
        number = search.survivors(number)
        if number == 1:
            break
        for run in now.alive[:number]:
            found[run] += rung - before
        before = rung
    return {run: rounds for run, rounds in found.items() if rounds}


def decided(store: Store, cell: Cell) -> Cell | None:
    """The cell with the runs that its search chose; None while it is not over."""
    if cell.search is None:
        return cell
    best = standing(store, cell.search).best
    if best is None:
        return None
    runs, after = (tuple(cell.search.chosen(run, best) for run in each) for each in (cell.runs, cell.after))
    return replace(cell, runs=runs, after=after)
