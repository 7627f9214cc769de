"""fedskew: python -m benchmarks.peers.ours FOLDER loop|auto|work full|small CASE

Batches, augmentation and average are in the time. `work` writes the round for a peer instead.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import torch

from benchmarks.peers.chain import described
from benchmarks.peers.work import Weights, Work, serve
from fedskew import bench, tree
from fedskew.data import transforms
from fedskew.engine.batches import Cohort, Plan, cohort
from fedskew.engine.choose import Engine, many_of
from fedskew.engine.problem import Problem, Task, weights

CPU = torch.device("cpu")
LR = 0.01


def find(name: str, small: bool) -> bench.Case:
    """The case of `fedskew bench` called so, or three of its clients with two batches and a half each."""
    case = next(case for case in bench.CPU if case.name == name)
    return replace(case, clients=3, examples=case.batch * 5 // 2) if small else case


def problem_of(case: bench.Case, small: bool) -> Problem:
    """Small cases are in double precision: they are for comparing weights."""
    problem = bench.problem_of(case, CPU)
    return replace(problem, model=problem.model.double(), dtype=torch.float64) if small else problem


def made(case: bench.Case) -> Cohort:
    """Everybody, with the batches of round 1."""
    parts = np.split(np.arange(case.clients * case.examples), case.clients)
    plan = Plan(1, case.batch, False, case.transform, case.shape)
    return cohort(plan, range(case.clients), parts, LR, 0, 1, CPU)


def work(case: bench.Case, problem: Problem) -> Work:
    """The same round for a peer, who is spared the augmentation and the order."""
    c = made(case)
    x, y = [], []
    for k in range(case.clients):
        index = c.index[k][c.mask[k]]
        drawn = None if c.draws is None else c.draws[k][c.mask[k]]
        x.append(transforms.training(case.transform, problem.x[index], drawn, problem.dtype).numpy())
        y.append(problem.y[index].numpy())
    w, _ = weights(problem.model)
    leaves = {name: leaf.numpy() for name, leaf in w.items()}
    return Work(np.stack(x), np.stack(y), leaves, described(problem.model), case.batch, LR)


def rounds(way: Engine, case: bench.Case, problem: Problem) -> None:
    """Answer on stdout."""
    w, stats = weights(problem.model)
    many = many_of(problem, way)

    def a_round() -> Weights:
        c = made(case)
        (trained,) = many([Task(w, stats, c)])
        return {name: leaf.numpy() for name, leaf in tree.mean(trained.w, c.n).items()}

    serve(a_round)


def main(folder: str, asked: str, size: str, name: str) -> None:
    """Train rounds, or write the work."""
    case = find(name, size == "small")
    problem = problem_of(case, size == "small")
    if asked == "work":
        work(case, problem).save(Path(folder))
    else:
        rounds(next(way for way in get_args(Engine) if way == asked), case, problem)


if __name__ == "__main__":
    main(*sys.argv[1:])
