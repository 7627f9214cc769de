"""`fedskew runs` and `fedskew resume`: what the store holds, and going on with it."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from fedskew.cli import chosen, console
from fedskew.cli.config import read
from fedskew.cli.exported import to_csv, to_json
from fedskew.cli.prepared import told
from fedskew.cli.progress import printable, progress
from fedskew.errors import FedskewError
from fedskew.signals import orderly
from fedskew.store import Entry, Store

if TYPE_CHECKING:
    from fedskew.data.dataset import Dataset
    from fedskew.engine.choose import Engine, Precision

app = typer.Typer(
    name="runs",
    help="List, show, export and delete the runs of the store (FEDSKEW_STORE, else ./runs).",
    no_args_is_help=True,
)

_LOOK: Any = {"box": None, "header_style": "bold", "pad_edge": False}

Id = Annotated[str, typer.Argument(metavar="ID", help="The run's id, or a beginning of it that no other has.")]


class Format(StrEnum):
    """How rows are exported."""

    csv = "csv"
    json = "json"


@app.command("list")
def list_(
    data: chosen.Data = None,
    partition: chosen.Partition = None,
    algorithm: chosen.Algorithm = None,
    name: chosen.Name = None,
    status: chosen.Status = None,
    as_json: console.Json = False,
) -> None:
    """List the runs, the newest first.

    Example: fedskew runs list --status finished --partition "dirichlet*"
    """
    store = Store()
    every = store.runs()
    entries = chosen.matching(every, data=data, partition=partition, algorithm=algorithm, name=name, status=status)
    if as_json:
        console.print_json([_summary(e) for e in entries])
        return
    if not entries:
        missing = f"none of {len(every)} runs fits" if every else "no runs"
        console.note(f"{missing} in {store.folder}; start one with: fedskew train")
        return
    table = Table(**_LOOK)
    for header in ("id", "status", "round", "accuracy", "data", "partition", "algorithm", "name", "created"):
        # what one types or compares is never cut; a narrow terminal breaks the rest into lines
        table.add_column(header, no_wrap=header in ("id", "status", "round", "accuracy"), overflow="fold")
    for e in entries:
        numbers = (f"{e.round}/{e.rounds}", _percent(e.accuracy))
        created = f"{datetime.fromisoformat(e.created).astimezone():%d %b %H:%M}"
        cells = (e.id, e.status, *numbers, e.data, e.partition, _method(e), e.name, created)
        table.add_row(*map(_plain, cells))
    console.out.print(table)


@app.command()
def show(id: Id, as_json: console.Json = False) -> None:
    """Show one run: its spec, how it stands, its last rounds and its checkpoints.

    Example: fedskew runs show 3f
    """
    store = Store()
    entry = store.find(id)
    rows = store.records(id, after=entry.round - 5)
    saved = store.checkpoints(id)
    if as_json:
        extra = {"message": entry.message, "finished": entry.finished, "environment": entry.environment}
        console.print_json(_summary(entry) | extra | {"run": entry.spec, "rows": rows, "checkpoints": saved})
        return
    before = store.records(id, after=-1)[:1]
    facts = Table.grid(padding=(0, 2))
    status = f"{entry.status}: {entry.message}" if entry.message else entry.status
    about = {"id": entry.id, "status": status, "created": entry.created, "finished": entry.finished}
    about |= {key: json.dumps(v) if isinstance(v, dict) else v for key, v in entry.spec.items()} | entry.environment
    for key, value in about.items():
        facts.add_row(Text(key, style="dim"), _plain(value))
    for line in told(before[0].get("prepared") or {}) if before else ():
        facts.add_row(Text("prepared", style="dim"), _plain(line))
    console.out.print(facts)
    table = Table("round", "lr", "loss", "accuracy", "EMD", "clients", "seconds", **_LOOK)
    for r in rows:
        loss = "" if r["loss"] is None else f"{r['loss']:.4g}"  # nothing was trained in this row
        numbers = f"{r['lr']:.4g}", loss, _percent(r["accuracy"]), f"{r['emd']:.3f}"
        table.add_row(str(r["round"]), *numbers, str(r["clients"]), f"{r['seconds']:.3f}")
    console.out.print(table)
    for c in saved:
        console.out.print(_plain(f"checkpoint {c['file']}, {c['bytes']:,} bytes, sha256 {c['sha256'][:12]}…"))


@app.command()
def export(
    id: Id,
    format: Annotated[Format, typer.Option(help="One line a round, or the whole run.")] = Format.csv,
    out: Annotated[Path | None, typer.Option(help="Write to this file, not to standard output.")] = None,
) -> None:
    """Write a run's rows as CSV, or the run and its rows as JSON.

    Example: fedskew runs export 3f --format csv --out rows.csv
    """
    store = Store()
    text = to_csv(store.records(id)) if format is Format.csv else to_json(store.document(id))
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8", newline="")
    except OSError as e:
        raise FedskewError(f"--out {out}: {e.strerror}; give a file that can be written") from e
    console.note(f"wrote {out}")


@app.command()
def delete(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="The runs' ids, or beginnings of them.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete runs with their rows and checkpoints; refused while one is being trained.

    Example: fedskew runs delete 3f a7 --yes
    """
    store = Store()
    found = list(dict.fromkeys(store.find(id).id for id in ids))  # all of them exist before one is gone
    if not yes:
        if not sys.stdin.isatty():
            raise FedskewError(f"deleting {', '.join(found)} needs a yes: add --yes")
        typer.confirm(f"Delete {', '.join(found)} for good?", abort=True, err=True)
    for id in found:
        store.delete(id)
        console.note(f"deleted {id}")


@app.command()
def pack(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The .zip to write.")],
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID...]", help="Runs. [all]")] = None,
    weights: Annotated[bool, typer.Option("--weights", help="Also the last weights of finished runs.")] = False,
) -> None:
    """Write runs to one file, to go on with them on another machine.

    Rows of all of them, and the last checkpoint of those that are not over.

    Example: fedskew runs pack runs.zip 3f a7
    """
    from fedskew.store import archive

    store = Store()
    packed = archive.pack(store, ids or [entry.id for entry in store.runs()], file, weights=weights)
    console.note(f"packed {len(packed)} runs into {file}")


@app.command()
def unpack(file: Annotated[Path, typer.Argument(metavar="FILE", help="A .zip of `fedskew runs pack`.")]) -> None:
    """Add the runs of a packed file to the store; one that the store has got further with stays.

    Example: fedskew runs unpack runs.zip
    """
    from fedskew.store import archive

    store = Store()
    console.note(f"added {len(archive.unpack(store, file))} runs to {store.folder}")


def resume(
    id: Id,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    config: Annotated[
        Path | None, typer.Option(help="Refuse to go on unless this TOML file still describes the run.")
    ] = None,
    checkpoint_seconds: Annotated[
        float, typer.Option(help="Seconds between checkpoints; 0: after every round.", min=0)
    ] = 5.0,
    as_json: console.Json = False,
) -> None:
    """Go on with a run that was interrupted, killed or failed, as if it had never stopped.

    Example: fedskew resume 3f
    """
    store = Store()
    if config is not None:
        from fedskew.run import Run

        store.check(id, Run(**read(config)))
    follow(store, id, device=device, checkpoint_seconds=checkpoint_seconds, as_json=as_json)


def follow(
    store: Store,
    id: str,
    *,
    data: Dataset | None = None,
    device: str = "auto",
    engine: Engine | None = None,
    precision: Precision | None = None,
    checkpoint_seconds: float = 5.0,
    as_json: bool = False,
) -> None:
    """Train a stored run to its end with a progress bar, then print it; exit status 1 when it diverged."""
    entry = store.find(id)
    id = entry.id
    if entry.over:
        console.note(f"run {id} is {entry.status} already; there is nothing to go on with")
    try:
        with orderly():
            rows = store.advance(
                id,
                data=data,
                device=device,
                engine=engine,
                precision=precision,
                checkpoint_seconds=checkpoint_seconds,
            )
            for row in progress(rows, entry.rounds, entry.name or id):
                for line in told(row.prepared or {}):
                    console.note(line)
    except (KeyboardInterrupt, SystemExit):
        entry = store.find(id)
        console.note(f"stopped after round {entry.round} of {entry.rounds}; go on with: fedskew resume {id}")
        raise
    if as_json:
        console.print_json(store.document(id))
    else:
        console.out.print(_plain(_sentence(store, id)), soft_wrap=True)
    if store.find(id).status == "diverged":
        raise typer.Exit(1)


def _summary(e: Entry) -> dict[str, Any]:
    keys = (
        "id",
        "name",
        "status",
        "data",
        "partition",
        "algorithm",
        "remedy",
        "round",
        "rounds",
        "accuracy",
        "created",
    )
    return {key: getattr(e, key) for key in keys}


def _sentence(store: Store, id: str) -> str:
    document, entry = store.document(id), store.find(id)
    end = f"{entry.status} ({entry.message})" if entry.message else entry.status
    reached = f"{entry.partition}, {_method(entry)}: {end} after round {entry.round} of {entry.rounds}"
    return f"{id} {entry.data}, {reached}, accuracy {_percent(entry.accuracy)}, {document['seconds']:.1f} s"


def _method(e: Entry) -> str:
    return f"{e.algorithm}, {e.remedy}" if e.remedy else e.algorithm


def _percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{fraction:.2%}"


def _plain(value: object) -> Text:
    """Text that a run's name cannot turn into markup or terminal codes."""
    return Text("" if value is None else printable(str(value)))
