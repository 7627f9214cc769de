"""train(run) -> rows: one run, or runs of one shape whose cohorts share every step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fedskew.algorithms import State
from fedskew.data import datasets
from fedskew.data.dataset import Dataset
from fedskew.engine.abreast import Clock, by_shape
from fedskew.engine.choose import Engine, Precision, many_of
from fedskew.engine.evaluate import Exam, Scores, evaluate_many
from fedskew.engine.problem import Task, Trained
from fedskew.errors import FedskewError
from fedskew.laboratory import Laboratory
from fedskew.rounds import Beginning, Row, Wait, following, rounds
from fedskew.run import Run
from fedskew.tree import Tree

# What a stacked step cannot vary from client to client.
SHAPE = ("data", "model", "transform", "batch", "epochs", "drop_last", "momentum", "weight_decay")


def train(
    run: Run,
    *,
    data: Dataset | None = None,
    device: str = "auto",
    engine: Engine = "auto",
    precision: Precision = "tf32",
    initial: Tree | None = None,
    start: State | None = None,
    first_round: int = 1,
) -> Iterator[Row]:
    """Train and give one row a round; `start=row.state, first_round=row.round + 1` goes on exactly where row was.

    `initial` are parameters and batch-norm statistics by name to begin with, in place of random ones; `run.start` only
    says where they came from.
    """
    beginning = Beginning(initial, start, first_round)
    for _, row in train_together(
        [run], beginnings=[beginning], data=data, device=device, engine=engine, precision=precision
    ):
        yield row


def train_together(
    runs: Sequence[Run],
    *,
    data: Dataset | None = None,
    device: str = "auto",
    engine: Engine = "auto",
    precision: Precision = "tf32",
    beginnings: Sequence[Beginning] | None = None,
) -> Iterator[tuple[int, Row]]:
    """Train runs of one shape as one: their cohorts share every step. Gives (which run, row) as rows come.

    Seeds, partitions, learning rates and methods may differ; each run's rows are those that it would have alone.
    """
    if not runs:
        return
    for run in runs[1:]:
        if changed := [key for key in SHAPE if getattr(run, key) != getattr(runs[0], key)]:
            raise FedskewError(f"runs that train together differ in {', '.join(changed)}; train them apart")
    data = datasets.load(runs[0].data) if data is None else data
    first = Laboratory.of(runs[0], data, device, engine, precision)
    labs = [first, *(Laboratory.of(run, data, device, engine, precision, beside=first) for run in runs[1:])]
    many = many_of(first.problem, engine)
    clock = Clock(len(runs))
    starts = beginnings or [Beginning()] * len(runs)
    waiting = {i: rounds(lab, start) for i, (lab, start) in enumerate(zip(labs, starts, strict=True))}
    answers: dict[int, Trained | Scores] = {}
    paces: dict[tuple[int, int], int] = {}
    while waiting:
        tasks: dict[int, Task] = {}
        exams: dict[int, Exam] = {}
        news = {i: following(talk, answers.pop(i, None)) for i, talk in waiting.items()}
        for i, said in news.items():
            talk = waiting[i]
            while isinstance(said, (Row, Wait)):
                if isinstance(said, Row):
                    row = replace(said, seconds=clock.since_last(i, abreast=len(waiting)))
                    with clock.stopped():
                        yield i, row
                said = following(talk, None)
            if said is None:
                del waiting[i]
            elif isinstance(said, Task):
                tasks[i] = said
            else:
                exams[i] = said
        for alike in by_shape(tasks, paces):
            answers |= dict(zip(alike, many([tasks[i] for i in alike]), strict=True))
        answers |= dict(zip(exams, evaluate_many(first.problem, list(exams.values())), strict=True))
