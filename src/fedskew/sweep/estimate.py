"""About how long runs will take here, from two steps of a round and one evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fedskew.data import datasets
from fedskew.engine.choose import many_of
from fedskew.engine.evaluate import Exam, evaluate_many
from fedskew.engine.problem import Task
from fedskew.experiment import SHAPE
from fedskew.laboratory import Laboratory
from fedskew.run import Run
from fedskew.sweep.groups import Outline


def seconds(known: Outline, **how: Any) -> float:
    """What is left, one group after another; each kind of group is tried out once."""
    tried: dict[tuple[Any, ...], float] = {}
    total = 0.0
    for group in known.groups:
        kinds: dict[tuple[Any, ...], list[Run]] = {}
        for run in group:
            kinds.setdefault(kind(run), []).append(run)
        for one, alike in kinds.items():
            key = (*one, len(alike))
            if key not in tried:
                tried[key] = seconds_a_round(alike, **how)
            total += max(map(known.left, alike)) * tried[key] * (2 if alike[0].divergence else 1)
    return total


def seconds_a_round(runs: Sequence[Run], device: str = "auto", engine: Any = None, precision: Any = None) -> float:
    """Of as many runs abreast as these, all like the first; the second try counts, when all is compiled and warm."""
    run = runs[0]
    lab = Laboratory.of(run, datasets.load(run.data), device, engine or "auto", precision or "tf32")
    many = many_of(lab.problem, engine or "auto")
    _, cohort = lab.prepared(1)
    steps = cohort.index.shape[1]
    few = min(2, steps)
    short = replace(
        cohort,
        index=cohort.index[:, :few],
        mask=cohort.mask[:, :few],
        draws=None if cohort.draws is None else cohort.draws[:, :few],
    )
    some = min(len(lab.test.y), 500)  # of the test examples: all of them may take longer than a round
    exam = Exam(*lab.initial, lab.test.x[:some], lab.test.y[:some], lab.classes)

    def trained() -> None:
        float(sum(t.loss.sum() for t in many([Task(*lab.initial, short)] * len(runs))))  # waits for a GPU

    stepped = _second_of_two(trained) / few * steps
    examined = _second_of_two(lambda: evaluate_many(lab.problem, [exam] * len(runs))) * len(lab.test.y) / some
    return stepped + examined / run.eval_every


def _second_of_two(work: Callable[[], object]) -> float:
    for _ in range(2):
        began = time.perf_counter()
        work()
    return time.perf_counter() - began


def kind(run: Run) -> tuple[Any, ...]:
    """Runs of one kind cost the same: one shape, and cohorts of one size."""
    cohort = (run.participation, run.cohort, run.examples, getattr(run.partition, "clients", None))
    exam = (run.eval_every, run.validation)
    return (*(str(getattr(run, key)) for key in SHAPE), run.algorithm.kind == "sgd", str(run.share), *cohort, *exam)
