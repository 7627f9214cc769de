"""`fedskew compare`: methods and remedies side by side, one table, one chart."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedskew.cli import console, options
from fedskew.cli.config import read
from fedskew.cli.progress import several
from fedskew.errors import FedskewError
from fedskew.signals import orderly

if TYPE_CHECKING:
    from fedskew.compare import Entrant
    from fedskew.store import Store

HOW_TO_COMPARE = "The comparison"


def _option(help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, show_default=False, rich_help_panel=HOW_TO_COMPARE)


def compare(
    algorithms: Annotated[
        str, _option("Methods with commas between: fedavg,fedavgm:0.9,fedprox:0.01,scaffold. [fedavg,fedavgm:0.9]")
    ] = "fedavg,fedavgm:0.9",
    seeds: Annotated[int, typer.Option(help="Runs of each.", min=1, rich_help_panel=HOW_TO_COMPARE)] = 1,
    tune: Annotated[
        str | None,
        _option("lr: choose each method's learning rate on a validation split; lr=0.01/0.03/0.1: from these."),
    ] = None,
    target: Annotated[
        float | None, _option("Count rounds to this accuracy. [95 % of what FedAvg reaches with IID clients]")
    ] = None,
    reference: Annotated[
        bool, _option("Also train FedAvg with IID clients. [yes]", "--reference/--no-reference")
    ] = True,
    out: Annotated[
        Path,
        _option("Where it goes: .html (table and chart), .svg (the chart), .md (the table) or .json. [compare.html]"),
    ] = Path("compare.html"),
    config: options.Config = None,
    data: options.Data = None,
    examples: options.Examples = None,
    partition: options.Partition = None,
    clients: options.Clients = None,
    share: options.Share = None,
    warm_up: options.WarmUp = None,
    holdout: options.Holdout = None,
    model: options.Model = None,
    rounds: options.Rounds = None,
    epochs: options.Epochs = None,
    batch: options.Batch = None,
    lr: options.Lr = None,
    lr_decay: options.LrDecay = None,
    lr_schedule: options.LrSchedule = None,
    momentum: options.Momentum = None,
    weight_decay: options.WeightDecay = None,
    participation: options.Participation = None,
    cohort: options.Cohort = None,
    eval_every: options.EvalEvery = None,
    seed: options.Seed = None,
    device: options.Device = "auto",
    engine: options.Engine = None,
    precision: options.Precision = None,
    as_json: console.Json = False,
) -> None:
    """Compare methods and remedies on the same clients, the same start and the same budget.

    Every method is trained as it is, with --share also on shared data, and with --warm-up also from a warm start. Rows
    go to the store (FEDSKEW_STORE, else ./runs): what it has already is not trained again, so that the same command
    goes on after an interruption.

    Example: fedskew compare --data mnist --partition classes:1 --algorithms fedavg,fedavgm:0.9,scaffold
    --share beta=0.1,alpha=0.5 --rounds 50 --seeds 3
    """
    given = {key: value for key, value in locals().items() if key not in _NOT_THE_RUNS and value is not None}
    from fedskew import compare
    from fedskew.report import files, page
    from fedskew.run import Run
    from fedskew.store import Store

    files.check_ending(out, (".html", ".svg", ".md", ".json"))
    if warm_up and not share:
        raise FedskewError('--warm-up trains on shared data: add --share "beta=0.1,alpha=0.5"')
    store, base = Store(), Run(**(read(config) if config else {}) | given)
    field = compare.entrants(base, compare.listed(algorithms), share, warm_up, reference)
    how = {"device": device, "engine": engine, "precision": precision}
    with orderly():
        if tune:
            field = _tuned(store, field, _rates(tune, base.lr), how)
        runs = [compare.seeded(entrant.run, seeds) for entrant in field]
        ids = iter(_train(store, [run for each in runs for run in each], "comparing", how))
    pairs = [(entrant, [next(ids) for _ in range(seeds)]) for entrant in field]
    found = compare.rows(store, pairs, target)
    command = shlex.join(["fedskew", *sys.argv[1:]])
    document = {"rows": found, "command": command, "page": str(out), "runs": {e.label: list(i) for e, i in pairs}}
    chart = compare.chart(store, pairs, found)
    match out.suffix.lower():
        case ".html":
            sections = compare.sections(found, base, chart)
            files.write(out, page.render("Methods compared", sections, footer=f"Made by `{command}`."))
        case ".svg":
            files.save(chart, out)
        case ".md":
            files.write(out, f"`{command}`\n\n{compare.table(found, base).markdown()}")
        case _:
            files.write(out, json.dumps(document, indent=1) + "\n")
    if as_json:
        console.print_json(document)
    else:
        console.out.print(compare.table(found, base))
        console.note(f"wrote {out}; the runs are in {store.folder}")


def _tuned(store: Store, field: list[Entrant], rates: list[float], how: dict[str, Any]) -> list[Entrant]:
    from fedskew import compare

    tries = [compare.candidates(entrant, rates) for entrant in field]
    ids = iter(_train(store, [run for each in tries for run in each], "choosing learning rates", how))
    chosen = [compare.tuned(store, e, each, [next(ids) for _ in each]) for e, each in zip(field, tries, strict=True)]
    for entrant in chosen:
        edge = " (the grid's edge)" if entrant.run.lr in (min(rates), max(rates)) else ""
        console.note(f"{entrant.label}: lr {entrant.run.lr:g}{edge}")
    return chosen


def _rates(tune: str, lr: float) -> list[float]:
    from fedskew.compare import GRID

    key, equals, values = tune.partition("=")
    if key.strip() != "lr":
        raise FedskewError(f"--tune {tune!r}: only lr can be tuned; write lr, or lr=0.01/0.03/0.1")
    try:
        rates = [float(v) for v in values.split("/")] if equals else [lr * factor for factor in GRID]
    except ValueError:
        raise FedskewError(f"--tune {tune!r}: write learning rates with / between, as in lr=0.01/0.03/0.1") from None
    return sorted(set(rates))


def _train(store: Store, runs: list[Any], label: str, how: dict[str, Any]) -> list[str]:
    from fedskew import compare

    def watch(rows: Iterator[Any], rounds: int) -> Iterable[Any]:
        return several(rows, rounds, f"{label}, {len(runs)} runs")

    return compare.trained(store, runs, watch, **how)


_NOT_THE_RUNS = {
    *("algorithms", "seeds", "tune", "target", "reference", "out", "config", "share", "warm_up"),
    *("device", "engine", "precision", "as_json"),
}
