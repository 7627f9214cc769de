"""`fedskew train`: one run, its rows kept in the store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedskew.cli import console
from fedskew.cli.config import read

HOW = "How it is carried out"
ENGINE = "stacked (all clients in one computation), threaded (a client a thread), loop (one by one). [auto]"
PRECISION = "Of a GPU's products: tf32, bf16, fp32. [tf32]"


def _run(help: str, *names: str) -> Any:
    """An option that describes the run; one that was not given leaves the config's value or the default."""
    return typer.Option(*names, help=help, show_default=False, rich_help_panel="The run")


def train(
    config: Annotated[Path | None, typer.Option(help="A TOML file with the same keys; flags win over it.")] = None,
    name: Annotated[str | None, _run("A name for your own use.")] = None,
    data: Annotated[str | None, _run("A data set of `fedskew data list`, or an .npz file. [digits]")] = None,
    examples: Annotated[int | None, _run("Train on a random part of the training set. [all]")] = None,
    partition: Annotated[str | None, _run("iid, classes:1, dirichlet:0.1, emd:1.44, ... [iid]")] = None,
    clients: Annotated[int | None, _run("Clients in the population. [10]")] = None,
    model: Annotated[str | None, _run("A network's name or package.module:factory. [the data set's own]")] = None,
    transform: Annotated[str | None, _run("none, scale, standardise, crop-flip. [the data set's own]")] = None,
    algorithm: Annotated[str | None, _run("fedavg, fedavgm:0.9, sgd. [fedavg]")] = None,
    rounds: Annotated[int | None, _run("Communication rounds. [50]")] = None,
    epochs: Annotated[int | None, _run("Local epochs E. [1]")] = None,
    batch: Annotated[str | None, _run("Local batch size B, or full. [10]")] = None,
    drop_last: Annotated[
        bool | None, _run("Drop the short batch at an epoch's end. [keep]", "--drop-last/--keep-last")
    ] = None,
    lr: Annotated[float | None, _run("Local learning rate. [0.1]")] = None,
    lr_decay: Annotated[float | None, _run("Its factor from round to round. [1]")] = None,
    momentum: Annotated[float | None, _run("Local momentum. [0]")] = None,
    weight_decay: Annotated[float | None, _run("Local weight decay. [0]")] = None,
    participation: Annotated[float | None, _run("Fraction C of the clients in a round. [1]")] = None,
    cohort: Annotated[int | None, _run("Number of clients in a round, instead of a fraction.")] = None,
    eval_every: Annotated[int | None, _run("Rounds between evaluations. [1]")] = None,
    divergence: Annotated[
        bool | None, _run("Report the weight divergence from a matched SGD run.", "--divergence/--no-divergence")
    ] = None,
    seed: Annotated[int | None, _run("Decides every random choice. [0]")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...", rich_help_panel=HOW)] = "auto",
    engine: Annotated[str | None, typer.Option(help=ENGINE, rich_help_panel=HOW, show_default=False)] = None,
    precision: Annotated[str | None, typer.Option(help=PRECISION, rich_help_panel=HOW, show_default=False)] = None,
    checkpoint_seconds: Annotated[
        float, typer.Option(help="Seconds between checkpoints; 0: after every round.", min=0, rich_help_panel=HOW)
    ] = 5.0,
    as_json: console.Json = False,
) -> None:
    """Train one run and keep its rows in the store (FEDSKEW_STORE, else ./runs).

    Example: fedskew train --data mnist --partition classes:1 --algorithm fedavgm:0.9 --lr 0.01 --rounds 20
    """
    given = {key: value for key, value in locals().items() if key not in _NOT_THE_RUNS and value is not None}
    from fedskew.cli.runs import follow
    from fedskew.run import Run
    from fedskew.store import Store

    store = Store()
    id = store.create(Run(**(read(config) if config else {}) | given))
    console.note(f"run {id}")
    how: dict[str, Any] = {"device": device, "engine": engine, "precision": precision}
    follow(store, id, **how, checkpoint_seconds=checkpoint_seconds, as_json=as_json)


_NOT_THE_RUNS = {"config", "device", "engine", "precision", "checkpoint_seconds", "as_json"}
