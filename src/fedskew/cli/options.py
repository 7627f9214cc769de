"""The options that describe a run, for every command that trains. One that was not given leaves the config's value."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

HOW = "How it is carried out"


def _run(help: str, *names: str) -> Any:
    return typer.Option(*names, help=bracketed(help), show_default=False, rich_help_panel="The run")


def _how(help: str) -> Any:
    return typer.Option(help=bracketed(help), show_default=False, rich_help_panel=HOW)


def bracketed(help: str) -> str:
    """Words in [brackets] would be taken for markup and vanish."""
    return help.replace("[", r"\[")


Config = Annotated[Path | None, typer.Option(help="A TOML file with the same keys; flags win over it.")]
Name = Annotated[str | None, _run("A name for your own use.")]
Data = Annotated[str | None, _run("A data set of `fedskew data list`, or an .npz file. [digits]")]
Examples = Annotated[int | None, _run("Train on a random part of the training set. [all]")]
Partition = Annotated[str | None, _run("iid, classes:1, dirichlet:0.1, emd:1.44, ... [iid]")]
Clients = Annotated[int | None, _run("Clients in the population. [10]")]
Model = Annotated[str | None, _run("A network's name or package.module:factory. [the data set's own]")]
Transform = Annotated[str | None, _run("none, scale, standardise, crop-flip. [the data set's own]")]
Algorithm = Annotated[
    str | None,
    _run(
        "fedavg, fedavgm:0.9, fedprox:0.01, scaffold, fednova, feddyn:0.01, fedadam, fedyogi, fedadagrad, moon:1, sgd. "
        "Options: fedprox:0.01,loss=restricted,mean=median, ... (sampling=balanced, smoothing=0.1, swa=0.2). Short for "
        "fedavg with one: median, trimmed:0.1, krum:1, clip:10, fedrs, adjusted, balanced, smoothing, swa. [fedavg]"
    ),
]
Rounds = Annotated[int | None, _run("Communication rounds. [50]")]
Epochs = Annotated[int | None, _run("Local epochs E. [1]")]
Batch = Annotated[str | None, _run("Local batch size B, or full. [10]")]
DropLast = Annotated[bool | None, _run("Drop the short batch at an epoch's end. [keep]", "--drop-last/--keep-last")]
Lr = Annotated[float | None, _run("Local learning rate. [0.1]")]
LrDecay = Annotated[float | None, _run("Its factor from round to round. [1]")]
LrSchedule = Annotated[str | None, _run("cosine: it also falls to nothing over the rounds. [constant]")]
Momentum = Annotated[float | None, _run("Local momentum. [0]")]
WeightDecay = Annotated[float | None, _run("Local weight decay. [0]")]
Participation = Annotated[float | None, _run("Fraction C of the clients in a round. [1]")]
Cohort = Annotated[int | None, _run("Number of clients in a round, instead of a fraction.")]
EvalEvery = Annotated[int | None, _run("Rounds between evaluations. [1]")]
Divergence = Annotated[
    bool | None, _run("Report the weight divergence from a matched SGD run.", "--divergence/--no-divergence")
]
Seed = Annotated[int | None, _run("Decides every random choice. [0]")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...", rich_help_panel=HOW)]
Engine = Annotated[
    str | None,
    _how("stacked (all clients in one computation), threaded (a client a thread), loop (one by one). [auto]"),
]
Precision = Annotated[str | None, _how("Of products, on a GPU: tf32, bf16, fp32; bf16 also on a CPU. [tf32]")]
CheckpointSeconds = Annotated[
    float, typer.Option(help="Seconds between checkpoints; 0: after every round.", min=0, rich_help_panel=HOW)
]
Share = Annotated[
    str | None, _run('Share data: "beta=0.1,alpha=0.5", |G| = beta |D|, of which each client gets its own alpha.')
]
WarmUp = Annotated[
    str | None,
    _run("Train on the shared data first: 0.6 (to that accuracy), rounds=5 (passes); fraction=0.1: on other data."),
]
Start = Annotated[str | None, _run("Begin with these weights: FILE.safetensors or run:ID. [random ones]")]
Holdout = Annotated[float | None, _run("Part of the training set that no client gets. [0.2 with --share, else 0]")]
Validation = Annotated[
    float | None, _run("Split off this part of the training set and score on it, not on the test set. [0]")
]
