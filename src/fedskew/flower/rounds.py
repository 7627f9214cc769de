"""A run in a federation: the round loop of a simulation, with its tasks sent to nodes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import replace

from flwr.app import RecordDict
from flwr.serverapp import Grid

from fedskew.data.dataset import Dataset
from fedskew.data.partition import Nodes
from fedskew.engine.abreast import Clock
from fedskew.engine.choose import many_of
from fedskew.engine.evaluate import Scores, evaluate_many
from fedskew.engine.problem import Arrived, Task, Trained
from fedskew.flower import check, wire
from fedskew.flower.federation import Exchange, Federation, NoQuorum
from fedskew.flower.remote import Remote, federable
from fedskew.flower.settings import Settings
from fedskew.flower.wire import Card, Config, Wrong
from fedskew.rounds import Beginning, Row, Wait, following, rounds
from fedskew.run import Run
from fedskew.sides import split


def federate(grid: Grid, run: Run, data: Dataset, settings: Settings, at: Beginning) -> Iterator[Row]:
    """The rows of a run whose clients are the nodes behind a grid, from a beginning on."""
    federable(run)
    card = Card.of(data, data.transform if run.transform == "auto" else run.transform)
    clients = run.partition.clients if isinstance(run.partition, Nodes) else len(split(run, data))
    about = {
        "run": json.dumps(run.spec()),
        "data": card.written(),
        "engine": settings.engine,
        "session": secrets.token_hex(8),
    }
    federation = Federation(grid, clients, len(data.classes), settings, about)
    clock = Clock(1)
    federation.gather()
    lab = Remote.among(federation, run, data, settings)
    if lab.shared is not None:
        federation.share = RecordDict(
            {wire.ARRAYS: wire.pack_arrays({"x": data.x[lab.shared], "y": data.y[lab.shared]})}
        )
        federation.gather()
    here, talk, t = many_of(lab.problem, settings.engine), rounds(lab, at), at.first_round
    answer: Trained | Scores | None = None
    while (said := following(talk, answer)) is not None:
        answer = None
        if isinstance(said, Row):
            with clock.stopped():
                yield replace(said, seconds=clock.since_last(0, abreast=1))
        elif isinstance(said, Wait):
            continue
        elif not isinstance(said, Task):
            (answer,) = evaluate_many(lab.problem, [said])
        elif said.cohort.clients[0] < 0:  # warm-up, and SGD to compare with: on the server's own data
            (answer,) = here([said])
        else:
            answer = ask(lab, t, said)
            t += 1


def ask(lab: Remote, t: int, task: Task) -> Trained:
    """Have round t's cohort trained by its nodes; what comes back is in the order of clients."""
    cohort, settings, network = task.cohort, lab.federation.settings, task.w | task.stats
    weights, place = wire.pack(network), {k: i for i, k in enumerate(cohort.clients)}
    broken: dict[int, check.Update] = {}

    def question(k: int) -> tuple[RecordDict, Config]:
        terms, numbers = wire.pack_terms(task.terms.drift, task.terms.contrast, place[k])
        config: Config = {"server-round": t, "client": k, "population": list(cohort.population), **numbers}
        return RecordDict({wire.ARRAYS: weights, **terms}), config

    def accept(k: int, content: RecordDict) -> check.Update:
        update = check.update(content, network, t, lab.size(k))
        if not update.finite:
            broken[k] = update
            raise Wrong("its weights or its loss are NaN or infinite")
        return update

    least = settings.least(len(cohort), lab.run.algorithm)
    exchange = Exchange[check.Update](lab.federation, cohort.clients, least, f"round {t}", question, accept)
    try:
        exchange.run()
    except NoQuorum:
        if len(broken) < len(cohort):
            raise
        return _arrived(lab, t, task, broken, exchange)  # everybody's loss is NaN: the run has diverged
    return _arrived(lab, t, task, {k: u for k, u in exchange.done.items() if u is not None}, exchange)


def _arrived(
    lab: Remote, t: int, task: Task, updates: dict[int, check.Update], exchange: Exchange[check.Update]
) -> Trained:
    rest = lab.cohort_of(t, {k: updates[k].n for k in sorted(updates)})
    arrived = Arrived(rest, len(task.cohort) - len(rest), exchange.bytes_up, exchange.bytes_down)
    return replace(check.trained([updates[k] for k in rest.clients], task.w), arrived=arrived)
