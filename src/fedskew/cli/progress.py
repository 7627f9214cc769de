"""The progress bar of everything that trains: accuracy and time left, on standard error, gone when done."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing, nullcontext
from time import monotonic
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fedskew.cli import console

if TYPE_CHECKING:
    from types import TracebackType

    from fedskew.rounds import Row

LINES = 10.0  # seconds between lines where there is no bar


def printable(text: str) -> str:
    """The text without what a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[accuracy]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console.err,
        transient=True,
        disable=not console.err.is_terminal,
    )


def several(rows: Iterator[tuple[str, Row]], rounds: int, label: str) -> Generator[tuple[str, Row], None, None]:
    """(id, row) pairs of many runs as they come; the bar counts the rounds of all."""
    bar = _bar()
    with closing(rows) if isinstance(rows, Generator) else nullcontext(), bar:
        task = bar.add_task(printable(label), total=rounds, accuracy="")
        for id, row in rows:
            bar.update(task, advance=1)
            yield id, row


def progress(rows: Iterator[Row], rounds: int, label: str = "") -> Generator[Row, None, None]:
    """The rows as they come; a bar is drawn where standard error is a terminal."""
    bar = _bar()
    # closed here and not when it is collected: a run's checkpoint is written before the command ends
    with closing(rows) if isinstance(rows, Generator) else nullcontext(), bar:
        task = bar.add_task(printable(label), total=None, accuracy="")  # a moving bar until the first round is done
        for row in rows:
            if bar.tasks[task].total is None:
                bar.reset(task, total=rounds, completed=row.round)  # a resumed run is timed from where it starts
            else:
                bar.update(task, completed=row.round)
            if row.accuracy is not None:
                bar.update(task, accuracy=f"accuracy {row.accuracy:.1%}")
            yield row


class Whole:
    """A sweep's progress: rounds of all runs and the time left, as a bar, or a line now and then where nobody looks."""

    def __init__(self, rounds: dict[str, int], left: dict[str, int]) -> None:
        self.rounds, self.left = rounds, dict(left)  # of every run: in all, and still to be trained
        self.total = sum(left.values())
        self.over: set[str] = set()
        self.said = monotonic()
        self.first: tuple[float, int] | None = None  # when the first row came, and the rounds done then
        self.bar = _bar()

    def __enter__(self) -> Whole:
        self.bar.__enter__()
        self.task = self.bar.add_task("", total=self.total, accuracy="")
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        self.bar.__exit__(kind, e, trace)

    def row(self, id: str, row: Row) -> None:
        """A run got to this row; after a retry that may be one it had been at before."""
        self.left[id] = self.rounds[id] - row.round
        if row.diverged or not self.left[id]:
            self.left[id] = 0
            self.over.add(id)
        self.first = self.first or (monotonic(), self.done)
        self.bar.update(self.task, completed=self.done, description=f"{len(self.over)} of {len(self.rounds)} runs")
        if self.bar.disable and monotonic() - self.said >= LINES:
            self.said = monotonic()
            console.note(self.sentence())

    @property
    def done(self) -> int:
        """Rounds trained by now; a run that goes on from its checkpoint may have been a little further before."""
        return max(0, self.total - sum(self.left.values()))

    def sentence(self) -> str:
        """How far it is, in words."""
        rest = self.total - self.done
        far = f"{len(self.over)} of {len(self.rounds)} runs, {self.done:,} of {self.total:,} rounds"
        began, before = self.first or (0.0, self.done)
        if self.done <= before or not rest:
            return far
        return f"{far}, about {duration((monotonic() - began) * rest / (self.done - before))} left"


def duration(seconds: float) -> str:
    """About how long, for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
