"""The runs that a command is about: by id, the beginning of one, a name, or by what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer

from fedskew.errors import FedskewError
from fedskew.store import Entry, Store

WHICH = "Which runs"


def _filter(what: str) -> Any:
    help = f"Only runs with this {what}; * stands for any text."
    return typer.Option(metavar="PATTERN", help=help, show_default=False, rich_help_panel=WHICH)


Data = Annotated[str | None, _filter("data set")]
Partition = Annotated[str | None, _filter("partition, as in dirichlet*")]
Algorithm = Annotated[str | None, _filter("algorithm, as in fedavg*")]
Name = Annotated[str | None, _filter("name")]
Status = Annotated[str | None, _filter("status: running, finished, interrupted, diverged or failed")]


def matching(entries: Sequence[Entry], **patterns: str | None) -> list[Entry]:
    """The entries whose fields fit all patterns that were given."""
    given = {field: pattern for field, pattern in patterns.items() if pattern is not None}
    return [e for e in entries if all(fnmatchcase(getattr(e, field), pattern) for field, pattern in given.items())]


def named(store: Store, name: str) -> list[Entry]:
    """The run of this id; else all runs of this name, as the seeds of one may be; else the run whose id begins so."""
    entries = store.runs()
    found = [e for e in entries if e.id == name] or [e for e in entries if e.name == name][::-1]
    if found:
        return found
    if any(e.id.startswith(name) for e in entries):
        return [store.find(name)]  # which refuses a beginning that several have
    raise FedskewError(f"no run {name!r} in {store.folder}; ids and names are in: fedskew runs list")
