"""The ServerApp: a run in a federation, its rows and a checkpoint of every round in the store."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedskew.data.dataset import Dataset
from fedskew.flower.remote import federable
from fedskew.flower.rounds import federate
from fedskew.flower.settings import Settings
from fedskew.rounds import Beginning, Row
from fedskew.run import Run
from fedskew.store import Store

log = logging.getLogger("fedskew.flower")

PATIENCE = 60.0  # seconds: the ServerApp of a SuperLink that was killed has the run for a moment longer


def server_app(run: Run) -> ServerApp:
    """The server of a run; its settings are the Flower app's config (see `Settings`)."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        _logged()
        serve(grid, run, Settings.of(context.run_config))

    return app


def serve(grid: Grid, run: Run, settings: Settings) -> str:
    """Train a run with the nodes behind a grid, into the store; the id that a new run can go on with."""
    federable(run)
    store = Store(settings.store or None)
    if settings.resume:
        store.check(settings.resume, run)
        id = store.find(settings.resume).id
    else:
        id = store.create(run)
    log.info("run %s; were it stopped, go on with: -c 'resume=\"%s\"'", id, id)

    def by(
        runs: Sequence[Run], *, data: Dataset, beginnings: Sequence[Beginning], **_: Any
    ) -> Iterator[tuple[int, Row]]:
        return ((0, row) for row in federate(grid, runs[0], data, settings, beginnings[0]))

    how = {"device": settings.device, "engine": settings.engine, "checkpoint_seconds": 0, "patience": PATIENCE}
    rows = store.advance(id, by=by, **how)
    with closing(rows):
        for row in rows:
            log.info("%s", told(row.record(), run.rounds))
    return id


def told(row: dict[str, Any], rounds: int) -> str:
    """A row's record for people."""
    loss = "" if row["loss"] is None else f", loss {row['loss']:.4f}"
    accuracy = "" if row["accuracy"] is None else f", accuracy {row['accuracy']:.2%}"
    lost = f", {row['lost']} lost" if row["lost"] else ""
    return f"round {row['round']} of {rounds}{loss}{accuracy}, {row['clients']} clients{lost}, {row['seconds']:.1f} s"


def _logged() -> None:
    """Our remarks beside Flower's, in the log that `flwr run --stream` shows."""
    ours, flower = logging.getLogger("fedskew"), logging.getLogger("flwr")
    ours.setLevel(logging.INFO)
    for handler in flower.handlers:
        if handler not in ours.handlers:
            ours.addHandler(handler)
