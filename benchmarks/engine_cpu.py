"""A round on a CPU, three ways: the loop, one client a thread, and all clients stacked; each in a process of its own.

The machine may be shared, so ways alternate and a ratio is the median over neighbouring rounds.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks import figures
from fedskew import models, rng
from fedskew.data import transforms
from fedskew.data.dataset import Transform
from fedskew.engine import loop, stacked, threaded
from fedskew.engine.batches import Cohort, Plan, cohort
from fedskew.engine.pick import pick
from fedskew.engine.problem import Problem, Task, Trained, weights
from fedskew.engine.seeded import with_seeded_dropout

RESULTS = Path(__file__).parent / "results" / "engine_cpu.json"
WAYS: dict[str, Callable[[Problem, Task], Trained]] = {
    "loop": loop.local,
    "loop, one thread": loop.local,
    "threaded": threaded.local,
    "stacked": stacked.local,
}


@dataclass(frozen=True)
class Case:
    model: str
    shape: tuple[int, ...]
    clients: int
    examples: int  # a client
    batch: int
    transform: Transform = "scale"

    def make(self) -> tuple[Problem, Cohort]:
        """Random data of the right shape."""
        g, n = rng.stream(0, "benchmark"), self.clients * self.examples
        x = g.integers(0, 256, (n, *self.shape), dtype=np.uint8)
        shape = transforms.output_shape(self.transform, self.shape)
        model = with_seeded_dropout(models.build(models.MODELS[self.model], shape, 10, seed=0))
        problem = Problem(model, torch.from_numpy(x), torch.from_numpy(g.integers(0, 10, n)), self.transform)
        plan = Plan(1, self.batch, False, self.transform, self.shape)
        parts = np.split(np.arange(n), self.clients)
        return problem, cohort(plan, range(self.clients), parts, 0.05, 0, 1, torch.device("cpu"))


CASES = {
    "MNIST CNN, 10 x 600, B=10": Case("mnist-cnn", (1, 28, 28), 10, 600, 10),
    "MNIST CNN, 10 x 600, B=100": Case("mnist-cnn", (1, 28, 28), 10, 600, 100),
    "MNIST CNN, 1 x 1000, B=100": Case("mnist-cnn", (1, 28, 28), 1, 1000, 100),
    "CIFAR CNN, 5 x 500, B=64": Case("cifar-cnn", (3, 32, 32), 5, 500, 64, "crop-flip"),
    "KWS CNN, 10 x 600, B=10": Case("kws-cnn", (1, 50, 10), 10, 600, 10),
    "ResNet-8, 5 x 100, B=10": Case("resnet8", (3, 32, 32), 5, 100, 10, "crop-flip"),
    "Lahoti CIFAR, 5 x 100, B=10": Case("lahoti-cifar", (3, 32, 32), 5, 100, 10, "standardise"),
    "Lahoti MNIST, 100 x 60, B=10": Case("lahoti-mnist", (1, 28, 28), 100, 60, 10),
    "MLP, 10 x 600, B=10": Case("mlp", (1, 28, 28), 10, 600, 10),
    "MLP, 1 x 600, B=10": Case("mlp", (1, 28, 28), 1, 600, 10),
    "MLP on digits, 10 x 150, B=10": Case("mlp", (1, 8, 8), 10, 150, 10),
    "softmax regression, 100 x 60, B=10": Case("softmax", (1, 28, 28), 100, 60, 10),
    "softmax regression, 3 x 600, B=10": Case("softmax", (1, 28, 28), 3, 600, 10),
}


def serve(way: str) -> None:
    """Time a round of each case named on stdin."""
    if way == "loop, one thread":
        torch.set_num_threads(1)
    made: dict[str, tuple[Problem, Cohort]] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in made:
            made = {name: CASES[name].make()}
        problem, c = made[name]
        w, stats = weights(problem.model)
        start = time.perf_counter()
        WAYS[way](problem, Task(w, stats, c))
        print(time.perf_counter() - start, flush=True)


def measured(name: str, servers: dict[str, subprocess.Popen[str]], seconds: float) -> dict[str, Any]:
    """Alternate between the ways, after a round to warm up, for about so long but three times at least."""

    def once(way: str) -> float:
        stdin, stdout = servers[way].stdin, servers[way].stdout
        assert stdin is not None
        assert stdout is not None
        print(name, file=stdin, flush=True)
        return float(stdout.readline())

    for way in servers:
        once(way)
    times: dict[str, list[float]] = {way: [] for way in servers}
    start = time.perf_counter()
    while len(times["loop"]) < 3 or (time.perf_counter() - start < seconds and len(times["loop"]) < 15):
        for way in servers:
            times[way].append(once(way))
    return {
        "case": name,
        "picked": pick(*CASES[name].make()),
        "seconds": {way: round(statistics.median(t), 4) for way, t in times.items()},
        "ratio": {way: _ratio(t, times["loop"]) for way, t in times.items() if way != "loop"},
        "ratio_one_thread": {
            way: _ratio(times[way], times["loop, one thread"]) for way in ("threaded", "stacked") if way in times
        },
        "alternations": len(times["loop"]),
    }


def _ratio(ours: list[float], theirs: list[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(ours, theirs, strict=True)), 4)


def main(chosen: list[str], seconds: float = 10.0) -> None:
    """All cases, or those whose name holds one of the words given; the table, and the file when all were run."""
    names = [name for name in CASES if not chosen or any(word in name for word in chosen)]
    servers = {
        way: subprocess.Popen(
            [sys.executable, "-m", "benchmarks.engine_cpu", "--serve", way],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for way in WAYS
    }
    table = Table("case", "loop, s", "loop, one thread", "threaded", "stacked", "picked", title="Time over the loop's")
    rows = []
    for name in names:
        row = measured(name, servers, seconds)
        rows.append(row)
        ratios = [f"{row['ratio'][way]:.3f}" for way in list(WAYS)[1:]]
        table.add_row(name, f"{row['seconds']['loop']:.3f}", *ratios, row["picked"])
        print(json.dumps(row), file=sys.stderr, flush=True)
    for server in servers.values():
        server.communicate()
    Console().print(table)
    if not chosen:
        figures.keep(RESULTS, {"rows": rows, "load": os.getloadavg()[1]} | figures.about())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
    else:
        main(sys.argv[1:])
