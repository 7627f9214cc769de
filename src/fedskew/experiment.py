"""train(run) -> rows: the only loop over communication rounds."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch

from fedskew import measure, tree
from fedskew.algorithms import SGD, State
from fedskew.data import datasets
from fedskew.data.dataset import Dataset
from fedskew.engine.choose import Engine, Precision, many_of
from fedskew.engine.problem import Task, Trained
from fedskew.errors import FedskewError
from fedskew.laboratory import Laboratory
from fedskew.run import Run

__all__ = ["Row", "Run", "train", "train_together"]


@dataclass(frozen=True)
class Row:
    """One communication round. Test scores are None in a round that was not evaluated."""

    round: int
    lr: float
    loss: float  # mean training loss over the round's examples
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
    state: State = field(default_factory=dict, repr=False, compare=False)  # all that the next round needs

    @property
    def diverged(self) -> bool:
        """The training loss is no longer a number; there will be no further row."""
        return not math.isfinite(self.loss)

    def record(self) -> dict[str, Any]:
        """The row as a JSON document, without the weights."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "state"}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Row:
        """The row that `record` came from, without the weights."""
        per_class = record["per_class"]
        return cls(**(record | {"per_class": None if per_class is None else tuple(per_class)}))


def train(
    run: Run,
    *,
    data: Dataset | None = None,
    device: str = "auto",
    engine: Engine = "auto",
    precision: Precision = "tf32",
    start: State | None = None,
    first_round: int = 1,
) -> Iterator[Row]:
    """Train and give one row a round; `start=row.state, first_round=row.round + 1` goes on exactly where row was."""
    lab = Laboratory.of(run, data, device, engine, precision)
    rounds = _rounds(lab, start, first_round)
    many = many_of(lab.problem, engine)
    answer: Trained | None = None
    while (said := _next(rounds, answer)) is not None:
        if isinstance(said, Row):
            answer = None
            yield said
        else:
            (answer,) = many([said])


def train_together(
    runs: Sequence[Run],
    *,
    data: Dataset | None = None,
    device: str = "auto",
    engine: Engine = "auto",
    precision: Precision = "tf32",
) -> Iterator[tuple[int, Row]]:
    """Train runs of one shape as one: their cohorts share every step. Gives (which run, row) as rows come.

    Seeds, partitions, learning rates and methods may differ; each run's rows are those that it would have alone.
    """
    if not runs:
        return
    for run in runs[1:]:
        if changed := [key for key in _SHAPE if getattr(run, key) != getattr(runs[0], key)]:
            raise FedskewError(f"runs that train together differ in {', '.join(changed)}; train them apart")
    data = datasets.load(runs[0].data) if data is None else data
    first = Laboratory.of(runs[0], data, device, engine, precision)
    labs = [first, *(Laboratory.of(run, data, device, engine, precision, beside=first) for run in runs[1:])]
    many = many_of(first.problem, engine)
    waiting = {i: _rounds(lab, None, 1) for i, lab in enumerate(labs)}
    answers: dict[int, Trained] = {}
    while waiting:
        tasks: dict[int, Task] = {}
        for i, rounds in list(waiting.items()):
            said = _next(rounds, answers.pop(i, None))
            while isinstance(said, Row):
                yield i, said
                said = _next(rounds, None)
            if said is None:
                del waiting[i]
            else:
                tasks[i] = said
        for alike in _by_batch(tasks):
            answers |= dict(zip(alike, many([tasks[i] for i in alike]), strict=True))


# What a stacked step cannot vary from client to client.
_SHAPE = ("data", "model", "transform", "batch", "epochs", "drop_last", "momentum", "weight_decay")


def _by_batch(tasks: dict[int, Task]) -> list[list[int]]:
    """Tasks of the same batch size: padding a batch of B to one of K x B would waste most of it."""
    groups: dict[int, list[int]] = {}
    for i, task in tasks.items():
        groups.setdefault(task.cohort.index.shape[2], []).append(i)
    return list(groups.values())


def _next(rounds: Generator[Task | Row, Trained | None, None], answer: Trained | None) -> Task | Row | None:
    try:
        return rounds.send(answer)
    except StopIteration:
        return None


def _rounds(lab: Laboratory, start: State | None, first_round: int) -> Generator[Task | Row, Trained | None, None]:
    """The communication rounds: asks for a cohort to be trained by giving a Task, and is sent what came of it."""
    run, method = lab.run, lab.run.algorithm
    state = method.init(*lab.initial) if start is None else {"stats": {}, **_moved(start, lab.device)}
    if start is None and run.divergence:
        state |= {"sgd.w": lab.initial[0], "sgd.stats": lab.initial[1]}
    upcoming = lab.prepared(first_round)
    for t in range(first_round, run.rounds + 1):
        began = time.perf_counter()
        chosen, cohort = upcoming
        twin = {key: state.pop(key, {}) for key in ("sgd.w", "sgd.stats")}
        trained = yield Task(state["w"], state["stats"], cohort)
        assert trained is not None
        state = method.step(state, cohort, trained)
        if t < run.rounds:
            upcoming = lab.prepared(t + 1)  # while a GPU still trains this round: nothing has waited for it yet
        divergence = None
        if run.divergence:
            pool = lab.pool(t, chosen)
            centralised = yield Task(twin["sgd.w"], twin["sgd.stats"], pool)
            assert centralised is not None
            sgd = SGD().step({}, pool, centralised)
            divergence = measure.divergence(state["w"], sgd["w"])
            state |= {"sgd.w": sgd["w"], "sgd.stats": sgd["stats"]}
        loss = float((trained.loss * cohort.n).sum() / cohort.n.sum())
        scores = lab.test(state) if t % run.eval_every == 0 or t == run.rounds or not math.isfinite(loss) else None
        sent = len(chosen) * (tree.nbytes(state["w"]) + tree.nbytes(state["stats"]))
        yield Row(
            round=t,
            lr=cohort.lr,
            loss=loss,
            accuracy=scores.accuracy if scores else None,
            test_loss=scores.loss if scores else None,
            per_class=scores.per_class if scores else None,
            divergence=divergence,
            emd=0.0 if isinstance(method, SGD) else float(lab.emd[chosen].mean()),
            clients=len(chosen),
            examples=int(cohort.mask.sum()),
            bytes_up=sent,
            bytes_down=sent,
            seconds=time.perf_counter() - began,
            state=dict(state),
        )
        if not math.isfinite(loss):
            return


def _moved(state: State, device: torch.device) -> State:
    return {key: tree.apply(lambda x: x.to(device), leaves) for key, leaves in state.items()}
