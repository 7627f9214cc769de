"""`fedskew demo`: seven runs, one table, one report."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fedskew.cli import console
from fedskew.cli.progress import progress
from fedskew.errors import FedskewError


def demo(
    as_json: console.Json = False,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the report goes.")] = Path("report.html"),
    seed: Annotated[int, typer.Option(help="Decides every random choice.")] = 0,
    rounds: Annotated[
        int | None, typer.Option(help="Communication rounds of each run. [40]", show_default=False)
    ] = None,
) -> None:
    """Show what non-IID clients cost, why, and what helps: a table here and an offline report in HTML.

    Example: fedskew demo --out report.html
    """
    began = time.perf_counter()
    console.note("seven runs on the embedded digits; under a minute on two free cores")
    from fedskew import demo
    from fedskew.experiment import train
    from fedskew.report import files, page

    files.check_ending(out, (".html",))
    if out.is_dir():
        raise FedskewError(f"--out {str(out)!r} is a folder; name a file in it")
    outcomes = []
    runs = demo.runs(seed, demo.ROUNDS if rounds is None else rounds)
    for i, run in enumerate(runs, 1):
        label = ", ".join(filter(None, (f"{i} of {len(runs)}: {run.algorithm}", str(run.partition), run.remedy)))
        # a tiny network: a GPU would only add the way to it
        rows = [replace(row, state={}) for row in progress(train(run, device="cpu"), run.rounds, label)]
        outcomes.append(demo.Outcome(run, rows))
        console.note(f"{label}: accuracy {outcomes[-1].accuracy:.1%}")
    table = demo.table(outcomes)
    text = page.render(
        demo.TITLE, demo.sections(outcomes), intro=demo.intro(outcomes), footer="Made by `fedskew demo`."
    )
    files.write(out, text)
    seconds = time.perf_counter() - began
    if as_json:
        console.print_json({"rows": demo.records(outcomes), "seconds": round(seconds, 1), "report": str(out)})
    else:
        console.out.print(table)
        console.note(f"{seconds:.0f} s; the charts are in {out}")
