"""`fedskew sweep`: a grid of runs, here, in processes or on a Ray cluster, into one store."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Generator, Sequence
from contextlib import closing, nullcontext, redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedskew.cli import console, options
from fedskew.cli.config import read
from fedskew.cli.progress import Whole, duration, printable
from fedskew.errors import FedskewError
from fedskew.signals import orderly

if TYPE_CHECKING:
    from fedskew.store import Store
    from fedskew.sweep import Group, Outline
    from fedskew.sweep.agenda import Event
    from fedskew.sweep.conduct import Crew

WHERE = "Where it is trained"


class On(StrEnum):
    """Who trains."""

    here = "here"
    processes = "processes"
    ray = "ray"


def _where(help: str, **rules: Any) -> Any:
    return typer.Option(help=options.bracketed(help), show_default=False, rich_help_panel=WHERE, **rules)


def sweep(
    grid: Annotated[Path, typer.Argument(metavar="GRID", help="A TOML file with the tables base, grid and runs.")],
    on: Annotated[
        On, _where("here: in this process. processes: one a GPU, or one a core. ray: on a cluster. [here]")
    ] = On.here,
    address: Annotated[str, _where("Of the Ray cluster: host:port, or auto for one of this machine. [auto]")] = "auto",
    workers: Annotated[int | None, _where("Processes. [one a GPU, else one a core]", min=1)] = None,
    num_cpus: Annotated[float, _where("CPUs that a Ray worker takes. [1]", min=0.01)] = 1.0,
    num_gpus: Annotated[float | None, _where("GPUs that a Ray worker takes. [1 if the cluster has any]", min=0)] = None,
    together: Annotated[
        int | None, _where("Runs that train as one computation, at most. [a worker's share of all]", min=1)
    ] = None,
    retries: Annotated[int, _where("Further tries of what failed, from its checkpoints. [2]", min=0)] = 2,
    device: options.Device = "auto",
    engine: options.Engine = None,
    precision: options.Precision = None,
    checkpoint_seconds: options.CheckpointSeconds = 5.0,
    store: Annotated[
        Path | None, typer.Option(help=options.bracketed("The store's folder. [FEDSKEW_STORE, else ./runs]"))
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be trained, and train nothing.")] = False,
    as_json: console.Json = False,
) -> None:
    """Train a grid of runs; the store gets all of them, whoever trains.

    The file's table base holds keys of a run, grid a list of values for each key that varies, of which every
    combination is trained, and each of runs one more that differs from the base. What the store has already is not
    trained again, and what failed or was stopped goes on from its checkpoint: the same command continues a sweep. The
    exit status is 1 when a run failed for good.

    Example: fedskew sweep grid.toml --on processes --dry-run
    """
    from fedskew import grid as grids
    from fedskew import sweep
    from fedskew.store import Store
    from fedskew.sweep import conduct
    from fedskew.sweep.check import check, check_device

    if address != "auto" and on is not On.ray:
        raise FedskewError(f"--address {address} is a Ray cluster's: add --on ray")
    runs, kept = grids.parse(read(grid, "grid")), Store(store)
    crew = _crew(on, address, workers, num_cpus, num_gpus, device)
    with closing(crew) if crew else nullcontext(), redirect_stdout(sys.stderr):  # where Ray prints what it has to say
        place, hands = (device, 1) if crew is None else (crew.device, crew.size)
        check_device(place, engine, precision, ours=on is not On.ray)
        known = sweep.outline(kept, runs, together, hands)
        check(kept, (run for run, entry in known.stored.items() if entry is None))
        how: dict[str, Any] = {"engine": engine, "precision": precision}
        said = _plan(known, hands, None if on is On.ray else how | {"device": place})
        if not dry_run:
            ids, groups = sweep.plan(kept, runs, together, hands)
            how |= {"retries": retries, "checkpoint_seconds": checkpoint_seconds}
            if crew is None:
                _watch(kept, groups, conduct.here(kept, groups, device=device, **how))
            else:
                _watch(kept, groups, conduct.abroad(kept, groups, crew, **how))
    if dry_run:
        if as_json:
            console.print_json(said)
        return
    failed = [id for id in dict.fromkeys(ids) if not kept.find(id).over]
    found = grids.cells(runs, ids)
    rows = grids.rows(kept, found)
    if as_json:
        entries = [kept.find(id) for id in dict.fromkeys(ids)]
        listed = [{"id": e.id, "status": e.status, "message": e.message, "run": e.spec} for e in entries]
        command = shlex.join(["fedskew", *sys.argv[1:]])
        console.print_json({"cells": rows, "runs": listed, "failed": failed, "plan": said, "command": command})
    else:
        keys = grids.varied(found) or ["partition", "algorithm"]
        shown = [row | {key: cell.setting[key] for key in keys} for row, cell in zip(rows, found, strict=True)]
        console.out.print(grids.table(shown, keys, f"{grid.name}: {len(known.stored)} runs"))
        console.note(f"the runs are in {kept.folder}")
    if failed:
        console.note(f"{len(failed)} runs failed ({', '.join(failed[:5])}); the same command tries them again")
        raise typer.Exit(1)


def _crew(
    on: On, address: str, workers: int | None, num_cpus: float, num_gpus: float | None, device: str
) -> Crew | None:
    if on is On.processes:
        from fedskew.sweep.processes import Processes

        return Processes(device, workers)
    if on is On.ray:
        from fedskew.sweep.cluster import Cluster

        return Cluster(address, num_cpus, num_gpus, device)
    return None


def _plan(known: Outline, hands: int, how: dict[str, Any] | None) -> dict[str, Any]:
    """Say what is to be trained, and about how long that takes where it can be tried out here."""
    seconds = None if how is None else _seconds(known, how)
    seconds = seconds and seconds / min(hands, len(known.groups) or 1)
    groups = [len(group) for group in known.groups]
    console.note(f"{len(known.stored)} runs, {known.finished} of them finished already")
    if groups:
        sizes = f"{min(groups)}" if min(groups) == max(groups) else f"{min(groups)} to {max(groups)}"
        shape = f"{len(groups)} groups of {sizes}" if len(groups) > 1 else "one group"
        about = "" if seconds is None else f", about {duration(seconds)}"
        at_once = f", {min(hands, len(groups))} at once" if hands > 1 else ""
        console.note(f"{sum(groups)} runs train in {shape}{at_once}: {known.rounds:,} rounds{about}")
    return {
        "runs": len(known.stored),
        "finished": known.finished,
        "groups": groups,
        "hands": hands,
        "rounds": known.rounds,
        "seconds": seconds,
    }


def _seconds(known: Outline, how: dict[str, Any]) -> float | None:
    from fedskew.sweep import estimate

    try:
        return estimate.seconds(known, **how)
    except Exception:  # of a user's network, say: training meets it again, tells it and goes on with the other runs
        return None


def _watch(store: Store, groups: Sequence[Group], events: Generator[Event, None, None]) -> None:
    """Train, with a bar; what is stopped has its checkpoints."""
    from fedskew.sweep.agenda import Begun, Failed, Trained

    runs = {id: run for group in groups for id, run in zip(group.ids, group.runs, strict=True)}
    left = {id: run.rounds - store.find(id).round for id, run in runs.items()}
    whole = Whole({id: run.rounds for id, run in runs.items()}, left)
    try:
        with orderly(), closing(events), whole:
            for event in events:
                match event:
                    case Trained(id, row):
                        whole.row(id, row)
                    case Begun(ids, where):
                        console.note(f"{_some(ids)} in {where}")
                    case Failed(ids, why, then):
                        console.note(f"{_some(ids)}: {printable(why)}; {then}")
    except (KeyboardInterrupt, SystemExit):
        console.note(f"stopped at {whole.sentence()}; the same command goes on")
        raise


def _some(ids: list[str]) -> str:
    return f"run {ids[0]}" if len(ids) == 1 else f"{len(ids)} runs ({ids[0]} ...)"
