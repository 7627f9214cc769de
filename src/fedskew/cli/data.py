"""`fedskew data`: which data sets there are, getting them, checking them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedskew.cli import console

if TYPE_CHECKING:
    from fedskew.data.download import Progress
    from fedskew.data.sources import Source

app = typer.Typer(
    name="data",
    help="List, get and check data sets. Example: fedskew data get mnist",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Name = Annotated[str, typer.Argument(help="A name of `fedskew data list`.")]


@app.command("list")
def list_(json: console.Json = False) -> None:
    """Every data set by name, and whether it is here. A path that ends in .npz is a data set, too.

    Example: fedskew data list
    """
    from fedskew.data import check, datasets
    from fedskew.data.sources import SOURCES

    folder = datasets.data_folder()
    rows = [_described(source, check.glance(source, folder)) for source in SOURCES.values()]
    if json:
        console.print_json({"folder": str(folder), "datasets": rows})
        return
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("name", no_wrap=True)
    for heading in ("train", "test", "classes", "shape", "size"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("here", no_wrap=True)
    here = {"ok": "yes", "missing": "no", "damaged": "in part"}
    for row in rows:
        counts = (f"{row[key]:,}" for key in ("train", "test", "classes"))
        shape = "x".join(map(str, row["shape"]))
        size = _megabytes(row["download"]) if row["download"] else "built in"
        table.add_row(row["name"], *counts, shape, size, here[row["state"]])
    console.out.print(table)
    console.out.print()
    for row in rows:
        console.out.print(f"{row['name']}: {row['licence']}, {row['homepage']}", highlight=False, soft_wrap=True)
    console.note(f"folder: {folder}")


@app.command()
def get(
    name: Name,
    origin: Annotated[
        Path | None,
        typer.Option("--from", metavar="DIR", help="Take the official files, packed or unpacked, from this folder."),
    ] = None,
    json: console.Json = False,
) -> None:
    """Download a data set, or take it from a folder; check it and put it into the data folder.

    A download that was cut off goes on where it stopped.

    \b
    Examples:
      fedskew data get mnist
      fedskew data get cifar10 --from ~/Downloads
    """
    from fedskew.data import check, datasets, install
    from fedskew.data.sources import find

    source, folder, start = find(name), datasets.data_folder(), time.perf_counter()
    changed = _shown(install.get(source, folder, origin))
    files = list(check.check(source, folder))
    size = sum(f.size for f in files)
    document = {
        "name": name,
        "path": str(folder / source.folder) if source.folder else None,
        "changed": changed,
        "bytes": size,
        "files": [asdict(f) for f in files],
        "seconds": time.perf_counter() - start,
    }
    if json:
        console.print_json(document)
    elif not source.folder:
        console.out.print(f"{name} comes with the installation; there is nothing to get", highlight=False)
    else:
        done = "is in place" if changed else "was there already and is whole"
        console.out.print(
            f"{name} {done}: {_megabytes(size)} in {document['path']}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )


@app.command("check")
def check_(
    name: Annotated[str | None, typer.Argument(help="A name of `fedskew data list`; without it, all.")] = None,
    json: console.Json = False,
) -> None:
    """Compare every file with the official one. Exits with 1 if the named set is not whole, or any is damaged.

    Example: fedskew data check cifar10
    """
    from fedskew.data import check, datasets
    from fedskew.data.sources import SOURCES, find

    folder = datasets.data_folder()
    found = []
    for source in [find(name)] if name else SOURCES.values():
        with console.err.status(f"checking {source.name}"):
            files = list(check.check(source, folder))
        found.append({"name": source.name, "state": check.verdict(files), "files": [asdict(f) for f in files]})
    ok = all(f["state"] == "ok" or (f["state"] == "missing" and not name) for f in found)
    if json:
        console.print_json({"folder": str(folder), "ok": ok, "datasets": found})
    else:
        _print_checked(found, folder)
    if not ok:
        raise typer.Exit(1)


@app.command()
def path(json: console.Json = False) -> None:
    """Where data sets lie: FEDSKEW_DATA, else the platform's folder for user data.

    Example: ls $(fedskew data path)
    """
    from fedskew.data import datasets

    folder = datasets.data_folder()
    if json:
        console.print_json({"folder": str(folder), "exists": folder.is_dir()})
    else:
        typer.echo(str(folder))


def _described(source: Source, state: str) -> dict[str, Any]:
    return {
        "name": source.name,
        "train": source.train,
        "test": source.test,
        "classes": len(source.classes),
        "class_names": list(source.classes),
        "shape": list(source.shape),
        "licence": source.licence,
        "homepage": source.homepage,
        "download": source.download,
        "state": state,
        "present": state == "ok",
    }


def _shown(steps: Iterable[Progress]) -> bool:
    """Draw the steps as progress bars; whether there were any."""
    from rich import progress

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    tasks: dict[str, progress.TaskID] = {}
    bars = progress.Progress(*columns, console=console.err)
    try:
        for step in steps:
            if not tasks:
                bars.start()  # not before there is something to show
            if step.step not in tasks:
                tasks[step.step] = bars.add_task(step.step, total=step.total)
            bars.update(tasks[step.step], completed=step.done)
    finally:
        if tasks:
            bars.stop()
    return bool(tasks)


def _print_checked(found: list[dict[str, Any]], folder: Path) -> None:
    from rich.table import Table
    from rich.text import Text

    colour = {"ok": "green", "missing": "yellow", "damaged": "red"}
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("data set", "file", "state"):
        table.add_column(heading, no_wrap=True)
    table.add_column("", overflow="fold")
    for one in found:
        files = one["files"] if one["state"] != "missing" else []
        if not files:
            table.add_row(one["name"], "", Text(one["state"], colour[one["state"]]), "")
        for i, file in enumerate(files):
            state = Text(file["state"], colour[file["state"]])
            table.add_row("" if i else one["name"], file["file"], state, Text(file["detail"]))
    console.out.print(table)
    console.note(f"folder: {folder}")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{size / 1e3:,.1f} kB"
