"""`fedskew train`: one run, its rows kept in the store."""

from __future__ import annotations

from typing import Any

from fedskew.cli import console, options
from fedskew.cli.config import read


def train(
    config: options.Config = None,
    name: options.Name = None,
    data: options.Data = None,
    examples: options.Examples = None,
    partition: options.Partition = None,
    clients: options.Clients = None,
    model: options.Model = None,
    transform: options.Transform = None,
    algorithm: options.Algorithm = None,
    share: options.Share = None,
    warm_up: options.WarmUp = None,
    start: options.Start = None,
    holdout: options.Holdout = None,
    validation: options.Validation = None,
    rounds: options.Rounds = None,
    epochs: options.Epochs = None,
    batch: options.Batch = None,
    drop_last: options.DropLast = None,
    lr: options.Lr = None,
    lr_decay: options.LrDecay = None,
    lr_schedule: options.LrSchedule = None,
    momentum: options.Momentum = None,
    weight_decay: options.WeightDecay = None,
    participation: options.Participation = None,
    cohort: options.Cohort = None,
    eval_every: options.EvalEvery = None,
    divergence: options.Divergence = None,
    seed: options.Seed = None,
    device: options.Device = "auto",
    engine: options.Engine = None,
    precision: options.Precision = None,
    checkpoint_seconds: options.CheckpointSeconds = 5.0,
    as_json: console.Json = False,
) -> None:
    """Train one run and keep its rows in the store (FEDSKEW_STORE, else ./runs).

    Example: fedskew train --data mnist --partition classes:1 --share beta=0.1,alpha=0.5 --lr 0.01 --rounds 20
    """
    given = {key: value for key, value in locals().items() if key not in NOT_THE_RUNS and value is not None}
    from fedskew.cli.runs import follow
    from fedskew.run import Run
    from fedskew.store import Store

    store = Store()
    id = store.create(Run(**(read(config) if config else {}) | given))
    console.note(f"run {id}")
    how: dict[str, Any] = {"device": device, "engine": engine, "precision": precision}
    follow(store, id, **how, checkpoint_seconds=checkpoint_seconds, as_json=as_json)


NOT_THE_RUNS = {"config", "device", "engine", "precision", "checkpoint_seconds", "as_json"}
