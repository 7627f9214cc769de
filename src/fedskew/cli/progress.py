"""The progress bar of everything that trains: accuracy and time left, on standard error, gone when done."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing, nullcontext
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
    from fedskew.experiment import Row


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
