"""The only loop over communication rounds; it says what is to be trained or scored, and others do that."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew import measure, tree
from fedskew.algorithms import SGD, State
from fedskew.algorithms.state import swa
from fedskew.engine import threads
from fedskew.engine.evaluate import Exam, Scores
from fedskew.engine.problem import Arrived, Task, Trained
from fedskew.engine.terms import PLAIN
from fedskew.errors import FedskewError
from fedskew.laboratory import Laboratory
from fedskew.tree import Tree


@dataclass(frozen=True)
class Row:
    """One communication round. Test scores are None in a round that was not evaluated.

    Round 0 is there only when something was prepared (data shared, weights warmed up or given): what it cost, and the
    scores that training starts from.
    """

    round: int
    lr: float
    loss: float | None  # mean training loss over the round's examples; None in a row 0 that trained nothing
    accuracy: float | None
    test_loss: float | None
    per_class: tuple[float, ...] | None
    divergence: dict[str, Any] | None  # see measure.divergence; from a matched SGD run
    emd: float  # mean over the round's clients
    clients: int
    examples: int
    bytes_up: int
    bytes_down: int
    seconds: float
    prepared: dict[str, Any] | None = None  # in row 0: what was shared and how warm-up went
    lost: int = 0  # clients of a federation that were asked but gave no valid reply in time
    state: State = field(default_factory=dict, repr=False, compare=False)  # all that the next round needs

    @property
    def diverged(self) -> bool:
        """The training loss is no longer a number; there will be no further row."""
        return self.loss is not None and not math.isfinite(self.loss)

    def record(self) -> dict[str, Any]:
        """The row as a JSON document, without the weights."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "state"}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Row:
        """The row that `record` came from, without the weights."""
        per_class = record["per_class"]
        return cls(**(record | {"per_class": None if per_class is None else tuple(per_class)}))


@dataclass(frozen=True)
class Beginning:
    """Where a run begins: at random weights, at given ones, or after a round with a known state; and where it stops."""

    initial: Tree | None = None
    state: State | None = None
    first_round: int = 1
    last_round: int | None = None  # for now: its rows are those that the whole run has


@dataclass(frozen=True)
class Wait:
    """A run has queued its work, and would wait for the device next: others may queue theirs first."""


Said = Task | Exam | Row | Wait


def following(talk: Generator[Said, Any, None], answer: Trained | Scores | None) -> Said | None:
    """What the round loop says next, given the answer to what it said last; None at its end."""
    with threads.for_mean_of(answer.w if isinstance(answer, Trained) else {}):
        try:
            return talk.send(answer)
        except StopIteration:
            return None


def rounds(lab: Laboratory, at: Beginning) -> Generator[Said, Any, None]:
    """The communication rounds: gives a Task or an Exam and is sent what came of it; gives rows as they are done."""
    run, method = lab.run, lab.run.algorithm
    if at.state is None:
        state = yield from _prepared(lab, at.initial)
        if not state:  # warm-up diverged
            return
    else:
        state = {"stats": {}, **_moved(at.state, lab.device)}
    last = run.rounds if at.last_round is None else min(at.last_round, run.rounds)
    upcoming = lab.prepared(at.first_round)
    for t in range(at.first_round, last + 1):
        chosen, cohort = upcoming
        twin = {key: state.pop(key, {}) for key in ("sgd.w", "sgd.stats")}
        averages = {key: state.pop(key) for key in ("swa.w", "swa.stats") if key in state}
        terms = PLAIN if isinstance(method, SGD) else method.terms(state, cohort)
        trained: Trained = yield Task(state["w"], state["stats"], cohort, terms)
        size = tree.nbytes(state["w"]) + tree.nbytes(state["stats"])
        sent = method.traffic * len(chosen) * size
        arrived = trained.arrived or Arrived(cohort, 0, sent, sent)
        if trained.arrived:
            cohort, chosen = arrived.cohort, np.array(arrived.cohort.clients)
        state = method.step(state, cohort, trained)
        if not isinstance(method, SGD) and method.swa:
            state = swa(state | averages, t, run.rounds, method.swa)
        if t < last:
            upcoming = lab.prepared(t + 1)  # while a GPU still trains this round: nothing has waited for it yet
        yield Wait()
        divergence = None
        if run.divergence:
            pool = lab.pool(t, chosen)
            centralised: Trained = yield Task(twin["sgd.w"], twin["sgd.stats"], pool)
            sgd = SGD().step({}, pool, centralised)
            divergence = measure.divergence(state["w"], sgd["w"])
            state |= {"sgd.w": sgd["w"], "sgd.stats": sgd["stats"]}
        loss, seen = _read((trained.loss * cohort.n).sum() / cohort.n.sum(), cohort.mask.sum())
        scores: Scores | None = None
        if t % run.eval_every == 0 or t == run.rounds or not math.isfinite(loss):
            scores = yield _exam(lab, state)
        yield Row(
            round=t,
            lr=cohort.lr,
            loss=loss,
            accuracy=scores.accuracy if scores else None,
            test_loss=scores.loss if scores else None,
            per_class=scores.per_class if scores else None,
            divergence=divergence,
            emd=0.0 if isinstance(method, SGD) else float(lab.emd(chosen).mean()),
            clients=len(chosen),
            examples=int(seen),
            bytes_up=arrived.bytes_up,
            bytes_down=arrived.bytes_down,
            seconds=0.0,  # the clock of train_together fills it in
            lost=arrived.lost,
            state=dict(state),
        )
        if not math.isfinite(loss):
            return


def _prepared(lab: Laboratory, initial: Tree | None) -> Generator[Said, Any, State]:
    """The state before the first round: share, warm up, and say in row 0 what it took; nothing if that diverged."""
    run = lab.run
    if run.start and initial is None:
        raise FedskewError(f"start = {run.start!r} is read by a store: use Store.advance, or give `initial` yourself")
    w, stats = lab.initial if initial is None else lab.given(initial)
    report = lab.sharing()
    examples, loss = 0, None
    if run.warm_up is not None:
        passes, reached = 0, None
        while not run.warm_up.over(passes, reached):
            passes += 1
            cohort = lab.warm_up(passes)
            trained: Trained = yield Task(w, stats, cohort)
            w, stats = tree.one(trained.w, 0), tree.one(trained.stats, 0)
            loss = float(trained.loss[0])
            examples += int(cohort.mask.sum())
            if not math.isfinite(loss):
                break
            if lab.rest is not None:
                scores: Scores = yield Exam(w, stats, lab.rest.x, lab.rest.y, lab.classes)
                reached = scores.accuracy
        report["warm_up"] = {"passes": passes, "accuracy": reached, "examples": examples}
    state = run.algorithm.init(w, stats)
    if run.divergence:
        state |= {"sgd.w": w, "sgd.stats": stats}
    if report or initial is not None:
        scores = yield _exam(lab, state)
        yield Row(
            round=0,
            lr=run.lr,
            loss=loss,
            accuracy=scores.accuracy,
            test_loss=scores.loss,
            per_class=scores.per_class,
            divergence=None,
            emd=0.0 if isinstance(run.algorithm, SGD) else report.get("emd", lab.mean_emd()),
            clients=len(lab.parts),
            examples=examples,
            bytes_up=0,
            bytes_down=report.get("bytes", 0),
            seconds=0.0,
            prepared=report,
            state=dict(state),
        )
    return state if loss is None or math.isfinite(loss) else {}


def _read(*numbers: Tensor) -> list[float]:
    """Numbers from the device, waiting for it once."""
    read: list[float] = torch.stack([number.double() for number in numbers]).tolist()
    return read


def _exam(lab: Laboratory, state: State) -> Exam:
    """A state's own test: of the averaged weights where the method averages them over rounds."""
    w, stats = (state.get(f"swa.{key}", state[key]) for key in ("w", "stats"))
    return Exam(w, stats, lab.test.x, lab.test.y, lab.classes)


def _moved(state: State, device: torch.device) -> State:
    """On the device, but for what is remembered of clients, which may be too much for it."""
    return {
        key: leaves if key.startswith("client.") else tree.apply(lambda x: x.to(device), leaves)
        for key, leaves in state.items()
    }
