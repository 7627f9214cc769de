"""`fedskew reproduce`: a paper's tables and figures beside the published numbers."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from fedskew.cli import console, options
from fedskew.cli.progress import duration, several
from fedskew.signals import orderly


def reproduce(
    paper: Annotated[str, typer.Argument(help="zhao2018, lahoti or hsu2019.")],
    table: Annotated[
        list[str] | None,
        typer.Option(
            help="A table's number, or its name (zhao2018: pretrained, hsu2019: remedies); may be repeated. [all]"
        ),
    ] = None,
    figure: Annotated[list[int] | None, typer.Option(help="A figure's number; may be repeated. [all]")] = None,
    data: Annotated[str | None, typer.Option(help="Only this column: mnist, cifar10 or kws. [all]")] = None,
    scale: Annotated[
        str,
        typer.Option(help="smoke: minutes, the path. quick: under an hour, the trends. full: the paper's protocol."),
    ] = "quick",
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs of each cell. [1]", show_default=False)] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Only cells with it: C=0.05, E=1, alpha=0. Repeatable."),
    ] = None,
    splits: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="hsu2019: the released split files. [our own populations]")
    ] = None,
    until: Annotated[
        int | None, typer.Option(min=1, help="Train no run past this round for now; it can go on later. [its last]")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where it goes. [reproduction/PAPER]", show_default=False)
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Say what would be trained, and train nothing.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Show what the store has already, and train nothing.")] = False,
    device: options.Device = "auto",
    engine: options.Engine = None,
    precision: options.Precision = None,
    checkpoint_seconds: options.CheckpointSeconds = 5.0,
    as_json: console.Json = False,
) -> None:
    """Train what a paper's tables and figures need and show ours beside the published numbers.

    Runs go to the store (FEDSKEW_STORE, else ./runs). What it has is not trained again: after an interruption the same
    command goes on where it stopped. `fedskew runs pack` and `unpack` move it to another machine.

    Example: fedskew reproduce zhao2018 --table 3 --data cifar10 --scale full --precision bf16
    """
    began = time.perf_counter()
    from fedskew.reproduce import cells
    from fedskew.reproduce.request import Request, write
    from fedskew.store import Store

    names = [f"table {n}" for n in table or ()] + [f"figure {n}" for n in figure or ()]
    request, store = Request.of(paper, names, data, scale, seeds, only or (), splits), Store()
    wanted = request.cells()
    how: dict[str, Any] = {"device": device, "engine": engine, "precision": precision}
    if not show:
        cost = cells.cost(store, wanted, until=until, **how)
        about = "" if cost.seconds is None else f", about {duration(cost.seconds)} here"
        console.note(f"{len(wanted)} cells; {cost.runs} runs and {cost.rounds:,} rounds are still to be trained{about}")
        if plan:
            if as_json:
                console.print_json({"cells": len(wanted)} | vars(cost))
            return
        with orderly():
            cells.train(store, wanted, _watch, until=until, **how, checkpoint_seconds=checkpoint_seconds)
    shown = request.exhibits(store)
    folder = out or Path("reproduction") / paper
    command = shlex.join(["fedskew", *sys.argv[1:]])
    written = write(request, shown, folder, cells.about(store, wanted, command, time.perf_counter() - began))
    if as_json:
        console.print_json({exhibit.name: exhibit.records for exhibit in shown})
    else:
        for exhibit in shown:
            if exhibit.table:
                console.out.print(exhibit.table)
    console.note(f"wrote {len(written)} files to {folder}; the page is {folder / 'report.html'}")


def _watch(rows: Iterator[Any], rounds: int, label: str) -> Iterable[Any]:
    return several(rows, rounds, label)
