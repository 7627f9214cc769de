"""Scores of R sets of weights, stacked against one after another: python -m benchmarks.evaluation [--json FILE]

Milliseconds, medians of alternating measurements; on a CPU those of one thread, whatever else the machine is doing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks import figures
from fedskew import models, rng
from fedskew.data import transforms
from fedskew.data.dataset import Transform
from fedskew.engine import evaluate as evaluation
from fedskew.engine import folded, threads
from fedskew.engine.choose import set_precision
from fedskew.engine.evaluate import Exam, evaluate, together
from fedskew.engine.problem import Problem, weights
from fedskew.engine.seeded import with_seeded_dropout

Case = tuple[str, tuple[int, ...], Transform, int]  # network, image, transform, test examples
CASES: dict[str, tuple[Case, ...]] = {
    "cpu": (
        ("softmax", (1, 28, 28), "scale", 10_000),
        ("mlp", (1, 28, 28), "scale", 2_000),
        ("mlp", (1, 8, 8), "scale", 360),
        ("cifar-cnn", (3, 32, 32), "crop-flip", 200),
        ("lahoti-mnist", (1, 28, 28), "scale", 400),
        ("kws-cnn", (1, 50, 10), "none", 400),
    ),
    "cuda": (
        ("mlp", (1, 28, 28), "scale", 10_000),
        ("mnist-cnn", (1, 28, 28), "scale", 10_000),
        ("cifar-cnn", (3, 32, 32), "crop-flip", 10_000),
        ("kws-cnn", (1, 50, 10), "none", 10_000),
        ("lahoti-cifar", (3, 32, 32), "standardise", 10_000),
        ("resnet8", (3, 32, 32), "standardise", 10_000),
    ),
}
RUNS = {"cpu": (1, 5, 20), "cuda": (1, 5, 40)}


def measured(case: Case, runs: int, device: torch.device) -> dict[str, Any]:
    """One row: both ways in turn."""
    name, shape, transform, n = case
    g = rng.stream(0, "evaluation")
    seen = transforms.output_shape(transform, shape)
    model = with_seeded_dropout(models.build(models.MODELS[name], seen, 10, seed=0)).to(device)
    x = torch.from_numpy(g.integers(0, 256, (n, *shape), dtype=np.uint8)).to(device)
    problem = Problem(model, x, torch.from_numpy(g.integers(0, 10, n)).to(device), transform)
    w, stats = weights(model)
    exams = [Exam({key: leaf + 0.001 * i for key, leaf in w.items()}, stats, x, problem.y, 10) for i in range(runs)]
    picked = evaluation.network_of(problem)
    network = picked or folded.lower(model)
    assert network is not None
    ways: dict[str, Callable[[], Any]] = {
        "stacked": lambda: together(problem, network, exams),
        "one by one": lambda: [evaluate(problem, exam) for exam in exams],
    }
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    times: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(6):
        for way, score in ways.items():
            began = clock()
            score()  # ends with a transfer to the host
            if turn:
                times[way].append(clock() - began)
    ms = {way: round(1e3 * statistics.median(t), 2) for way, t in times.items()}
    return {
        **{"model": name, "shape": shape, "examples": n, "runs": runs, "ms": ms},
        "picked": "one by one" if picked is None else "stacked",
    }


def main(path: str | None) -> None:
    """Print rows as they are measured."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    set_precision("tf32", device)
    if device.type == "cpu":
        torch.set_num_threads(1)
        threads.keep_memory()  # as training does
    rows = []
    for case in CASES[device.type]:
        for runs in RUNS[device.type]:
            rows.append(measured(case, runs, device))
            print(json.dumps(rows[-1]), flush=True)
    if path is not None:
        figures.keep(path, figures.about(device) | {"rows": rows})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write every row there")
    main(parser.parse_args().json)
