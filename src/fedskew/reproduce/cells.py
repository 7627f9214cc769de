"""A paper's cells, trained into the store and read back: nothing twice, and on from where it stopped."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedskew import measure, sweep
from fedskew.laboratory import find_device
from fedskew.papers.protocol import Cell, Search
from fedskew.reproduce import search
from fedskew.run import Run
from fedskew.store import Store
from fedskew.sweep import estimate

ABREAST = 20  # runs that are timed together, at most
Watch = Callable[[Iterator[Any], int, str], Iterable[Any]]


@dataclass(frozen=True)
class Outcome:
    """A cell and what its runs gave; `records` are the rows of each run."""

    cell: Cell
    ids: tuple[str, ...]
    records: tuple[list[dict[str, Any]], ...]
    decided: bool = True  # its search, if it has one, is over: the cell's runs are the chosen ones

    @property
    def accuracies(self) -> list[float]:
        """One a run that has got to its end."""
        return [
            measure.settled([r["accuracy"] for r in rows if r["accuracy"] is not None])
            for run, rows in zip(self.cell.last, self.records, strict=True)
            if rows and rows[-1]["round"] == run.rounds
        ]

    def so_far(self, most: int | None = None) -> tuple[int, list[float]]:
        """(rounds, one accuracy a run) of what there is: of whole runs or, without one, up to where all of them are.

        With `most`, up to that round at most: what a run did after it is left aside.

        A run that diverged is over, and counts with what its last weights are worth.
        """
        begun = [(run.rounds, rows) for run, rows in zip(self.cell.last, self.records, strict=True) if rows]
        lost = [rows for _, rows in begun if _diverged(rows)]
        alive = [(rounds, rows) for rounds, rows in begun if not _diverged(rows)]
        shown = [rows for rounds, rows in alive if rows[-1]["round"] == rounds] or [rows for _, rows in alive]
        at = min((rows[-1]["round"] for rows in shown), default=begun[0][0] if begun else 0)
        at = at if most is None else min(at, most)
        found = [_evaluations(rows, at) for rows in shown] + [_evaluations(rows, at)[-1:] for rows in lost]
        return at, [measure.settled(accuracies) for accuracies in found if accuracies]

    def first(self, number: int) -> Outcome:
        """What so many of its runs gave, the first ones."""
        cell = replace(self.cell, runs=self.cell.runs[:number], after=self.cell.after[:number])
        return replace(self, cell=cell, ids=self.ids[:number], records=self.records[:number])

    def record(self) -> dict[str, Any]:
        """The cell as the committed JSON has it."""
        found = self.accuracies
        return self.cell.setting | {
            "paper": self.cell.paper,
            "ours": statistics.fmean(found) if found else None,
            "std": statistics.stdev(found) if len(found) > 1 else None,
            "seeds": len(found),
            "rounds": self.cell.last[0].rounds,
            "runs": list(self.ids),
        }


def train(
    store: Store,
    cells: Sequence[Cell],
    watch: Watch,
    *,
    at_once: int | None = None,
    until: int | None = None,
    **how: Any,
) -> None:
    """Train whatever of the cells the store has not: searches first, runs that begin with other runs' weights last.

    At most `at_once` runs train together, and none past round `until`, where those are given.
    """
    choose(store, cells, watch, at_once=at_once, **how)
    ready = [found for cell in cells if (found := search.decided(store, cell))]
    _go(store, _first(ready), watch, "training", at_once, until, how)
    second = [run for cell in ready for run in begun(store, cell) if run]
    _go(store, second, watch, "training from pre-trained weights", at_once, until, how)


def choose(store: Store, cells: Sequence[Cell], watch: Watch, *, at_once: int | None = None, **how: Any) -> None:
    """Bring every search of the cells to its end; candidates of one rung train together, those of all cells."""
    for rung, candidates in search.steps(store, cells):
        _go(store, candidates, watch, f"searching, {len(candidates)} candidates to round {rung}", at_once, rung, how)


def _go(
    store: Store,
    runs: Sequence[Run],
    watch: Watch,
    label: str,
    at_once: int | None,
    until: int | None,
    how: dict[str, Any],
) -> None:
    _, groups = sweep.plan(store, runs, at_once, until=until)
    for _ in watch(sweep.train(store, groups, **how), sum(group.left for group in groups), label):
        pass


def outcomes(store: Store, cells: Sequence[Cell]) -> list[Outcome]:
    """What the store knows of the cells; a run that it does not have, or that is not chosen yet, gives no rows."""
    found = []
    for asked in cells:
        decided = search.decided(store, asked)
        ids = _ids(store, decided) if decided else ("",) * len(asked.last)
        records = tuple(store.records(id) if id else [] for id in ids)
        found.append(Outcome(decided or asked, ids, records, decided is not None))
    return found


def _ids(store: Store, cell: Cell) -> tuple[str, ...]:
    """Of the runs whose accuracy the cell is; empty where the store has none."""
    runs: Sequence[Run | None] = begun(store, cell) if cell.after else cell.runs
    stored = [run and store.same(run) for run in runs]
    return tuple(entry.id if entry else "" for entry in stored)


@dataclass(frozen=True)
class Cost:
    """What is still to be trained, and about how long this device will take."""

    runs: int
    rounds: int
    seconds: float | None


def cost(store: Store, cells: Sequence[Cell], *, probe: bool = True, until: int | None = None, **how: Any) -> Cost:
    """Count what the store lacks and time two steps, and an evaluation, of each shape of run."""
    left = _left(store, cells, until)
    if not probe or not left:
        return Cost(len(left), sum(left.values()), None if left else 0.0)
    alike: dict[tuple[Any, ...], list[tuple[Run, int]]] = {}
    for (run, _), rounds in left.items():
        alike.setdefault(estimate.kind(run), []).append((run, rounds))
    total = 0.0
    abreast = ABREAST if find_device(how.get("device", "auto")).type == "cuda" else 1  # a CPU gains nothing by it
    for runs in alike.values():
        together = [run for run, _ in runs[:abreast]]
        a_round = estimate.seconds_a_round(together, **how) / len(together)
        total += sum(rounds * a_round * (2 if run.divergence else 1) for run, rounds in runs)
    return Cost(len(left), sum(left.values()), total)


def _left(store: Store, cells: Sequence[Cell], until: int | None) -> dict[tuple[Run, Search | None], int]:
    """Rounds still to be trained of every run; one that waits for its search is known by the two of them."""
    left: dict[tuple[Run, Search | None], int] = {}
    for each in search.searches(cells):
        for run, rounds in search.left(store, each).items():
            left[run, None] = max(rounds, left.get((run, None), 0))
    for cell in cells:
        found = search.decided(store, cell)
        if found is None:
            left |= {(run, cell.search): min(run.rounds, until or run.rounds) for run in (*cell.runs, *cell.after)}
            continue
        second = [ready or run for ready, run in zip(begun(store, found), found.after, strict=True)]
        for run in (*found.runs, *second):
            stored = store.same(run)
            rounds = min(run.rounds, until or run.rounds) - (stored.round if stored else 0)
            if rounds > 0 and not (stored and stored.over):
                left[run, None] = rounds
    return left


def about(store: Store, cells: Sequence[Cell], command: str, seconds: float) -> dict[str, Any]:
    """What stands behind the numbers: the command, where and with what runs were trained, and how long that took."""
    ready = [cell for asked in cells if (cell := search.decided(store, asked))]
    ids = [id for cell in ready for id in _ids(store, cell) if id]
    tried = [found.id for each in search.searches(cells) for run in each.candidates if (found := store.same(run))]
    entries = [store.find(id) for id in dict.fromkeys([*ids, *tried])]
    environments = {json.dumps(entry.environment, sort_keys=True) for entry in entries}
    return {
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _commit(),
        "trained": [json.loads(text) for text in sorted(environments)],
        "runs": len(entries),
        "candidates": len(set(tried)),  # of these, runs of searches for learning rates
        "seeds": sorted({entry.spec["seed"] for entry in entries}),
        "training_seconds": round(sum(row["seconds"] for entry in entries for row in store.records(entry.id)), 1),
        "command_seconds": round(seconds, 1),
    }


def _evaluations(rows: Sequence[dict[str, Any]], until: int) -> list[float]:
    return [r["accuracy"] for r in rows if r["accuracy"] is not None and r["round"] <= until]


def _diverged(rows: Sequence[dict[str, Any]]) -> bool:
    loss = rows[-1]["loss"]
    return loss is not None and not math.isfinite(loss)


def _commit() -> str | None:
    """The commit of the source tree that runs, if it is one."""
    done = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    )
    return done.stdout.strip() or None


def _first(cells: Sequence[Cell]) -> list[Run]:
    return list(dict.fromkeys(run for cell in cells for run in cell.runs))


def begun(store: Store, cell: Cell) -> list[Run | None]:
    """The cell's runs that begin with another run's last weights; None while that one is not over."""
    found: list[Run | None] = []
    for before, run in zip(cell.runs, cell.after or (), strict=bool(cell.after)):
        stored = store.same(before)
        ready = stored is not None and stored.over
        found.append(Run(**run.model_dump() | {"start": f"run:{stored.id}"}) if ready and stored else None)
    return found
