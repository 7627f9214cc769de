"""A paper's cells, trained into the store and read back: nothing twice, and on from where it stopped."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedskew import measure, sweep
from fedskew.papers.protocol import Cell
from fedskew.run import Run
from fedskew.store import Store
from fedskew.sweep.estimate import seconds_a_round

Watch = Callable[[Iterator[Any], int, str], Iterable[Any]]


@dataclass(frozen=True)
class Outcome:
    """A cell and what its runs gave; `records` are the rows of each run."""

    cell: Cell
    ids: tuple[str, ...]
    records: tuple[list[dict[str, Any]], ...]

    @property
    def accuracies(self) -> list[float]:
        """One a run that has got to its end."""
        return [
            measure.settled([r["accuracy"] for r in rows if r["accuracy"] is not None])
            for run, rows in zip(self.cell.last, self.records, strict=True)
            if rows and rows[-1]["round"] == run.rounds
        ]

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


def train(store: Store, cells: Sequence[Cell], watch: Watch, *, at_once: int | None = None, **how: Any) -> None:
    """Train whatever of the cells the store has not; those that begin with other runs' weights come second.

    At most `at_once` runs train together, where that is given.
    """
    for runs, label in ((_first(cells), "training"), (None, "training from pre-trained weights")):
        wanted = [run for run in _second(store, cells) if run] if runs is None else runs
        _, groups = sweep.plan(store, wanted, at_once)
        for _ in watch(sweep.train(store, groups, **how), sum(group.left for group in groups), label):
            pass


def outcomes(store: Store, cells: Sequence[Cell]) -> list[Outcome]:
    """What the store knows of the cells; a run that it does not have gives no rows."""
    found = []
    for cell in cells:
        ids = []
        for run in _second(store, [cell]) if cell.after else cell.runs:
            stored = store.same(run) if run else None
            ids.append(stored.id if stored else "")
        found.append(Outcome(cell, tuple(ids), tuple(store.records(id) if id else [] for id in ids)))
    return found


@dataclass(frozen=True)
class Cost:
    """What is still to be trained, and about how long this device will take."""

    runs: int
    rounds: int
    seconds: float | None


def cost(store: Store, cells: Sequence[Cell], *, probe: bool = True, **how: Any) -> Cost:
    """Count what the store lacks and time two steps of each shape of run."""
    left: dict[Run, int] = {}
    later = [run for cell in cells for run in cell.after]
    begun = [begun or run for begun, run in zip(_second(store, cells), later, strict=True)]
    for run in [*_first(cells), *begun]:
        stored = store.same(run)
        if stored is None or not stored.over:
            left[run] = run.rounds - (stored.round if stored else 0)
    if not probe or not left:
        return Cost(len(left), sum(left.values()), None if left else 0.0)
    a_round: dict[tuple[Any, ...], float] = {}
    total = 0.0
    for run, rounds in left.items():
        shape = (*(str(getattr(run, key)) for key in sweep.SHAPE), run.algorithm.kind == "sgd", str(run.share))
        if shape not in a_round:
            a_round[shape] = seconds_a_round([run], **how)
        total += rounds * a_round[shape] * (2 if run.divergence else 1)
    return Cost(len(left), sum(left.values()), total)


def about(store: Store, cells: Sequence[Cell], command: str, seconds: float) -> dict[str, Any]:
    """What stands behind the numbers: the command, where and with what runs were trained, and how long that took."""
    ids = [id for outcome in outcomes(store, cells) for id in outcome.ids if id]
    entries = [store.find(id) for id in dict.fromkeys(ids)]
    environments = {json.dumps(entry.environment, sort_keys=True) for entry in entries}
    return {
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _commit(),
        "trained": [json.loads(text) for text in sorted(environments)],
        "runs": len(entries),
        "seeds": sorted({entry.spec["seed"] for entry in entries}),
        "training_seconds": round(sum(row["seconds"] for entry in entries for row in store.records(entry.id)), 1),
        "command_seconds": round(seconds, 1),
    }


def _commit() -> str | None:
    """The commit of the source tree that runs, if it is one."""
    done = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    )
    return done.stdout.strip() or None


def _first(cells: Sequence[Cell]) -> list[Run]:
    return list(dict.fromkeys(run for cell in cells for run in cell.runs))


def _second(store: Store, cells: Sequence[Cell]) -> list[Run | None]:
    """Runs that begin with another run's last weights; None while that one is not over."""
    found: list[Run | None] = []
    for cell in cells:
        for before, run in zip(cell.runs, cell.after or (), strict=bool(cell.after)):
            stored = store.same(before)
            ready = stored is not None and stored.over
            found.append(Run(**run.model_dump() | {"start": f"run:{stored.id}"}) if ready and stored else None)
    return found
