"""How cost grows with clients a round, with the population and with runs fused: python -m benchmarks.scaling FILE.json

On a GPU the CIFAR CNN in bfloat16, on a CPU softmax regression. `--population N` measures one population in a process
of its own, whose memory is then its own; `--populations FILE.json` measures them all anew and leaves the rest.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fedskew
from benchmarks import figures
from fedskew import bench
from fedskew.data.dataset import Dataset
from fedskew.data.partition import Iid

STEPS = (1, 3, 10, 30, 100, 300, 1000)
POPULATIONS = (10, 100, 1_000, 10_000, 100_000, 1_000_000)


def cases(device: torch.device) -> dict[str, tuple[bench.Case, ...]]:
    """One series a question."""
    gpu = device.type == "cuda"
    fixed: dict[str, Any] = (
        {"model": "cifar-cnn", "shape": (3, 32, 32), "transform": "crop-flip", "examples": 500, "batch": 64}
        if gpu
        else {"model": "softmax", "shape": (1, 28, 28), "transform": "scale", "examples": 60, "batch": 10}
    )
    return {
        "clients": tuple(bench.Case(f"{k} clients", **fixed, clients=k, loop=k <= 10 or not gpu) for k in STEPS),
        "runs": tuple(
            bench.Case(f"{r} runs", **fixed, clients=5, runs=r, loop=r <= 10 or not gpu) for r in STEPS if r <= 100
        ),
    }


def population(clients: int) -> dict[str, Any]:
    """Rounds of ten clients out of many, five examples each, and the memory they take above the data."""
    g = np.random.default_rng(0)
    n = 5 * clients
    x = g.integers(0, 256, (n, 1, 8, 8), dtype=np.uint8)
    y = np.arange(n) % 10
    data = Dataset("random", x, y, x[:100], y[:100], tuple("0123456789"))
    run = fedskew.Run(partition=Iid(clients=clients), cohort=10, model="softmax", rounds=6, eval_every=6)
    next(fedskew.train(fedskew.Run(clients=2, model="softmax", rounds=1)))  # torch and its memory are not the point
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = [row.seconds for row in fedskew.train(run, data=data)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "clients": clients,
        "round_s": statistics.median(seconds[1:]),
        "memory_mb": (peak - before) * 1024 / 1e6,
        "index_mb": 8 * n / 1e6,
    }


def main(path: str) -> None:
    """Measure every series on this device."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    precision: Any = "bf16" if device.type == "cuda" else "tf32"
    found: dict[str, Any] = {
        **figures.about(device),
        "precision": precision if device.type == "cuda" else "fp32",
    }
    for name, series in cases(device).items():
        found[name] = []
        for case, record in zip(series, bench.measure(series, device, precision=precision), strict=True):
            found[name].append({"clients": case.clients, "runs": case.runs, **record})
            print(f"{record['name']}: {record['ours_s']:.4f} s", flush=True)
    if device.type == "cpu":
        found |= populations()
    figures.keep(path, found)


def populations() -> dict[str, Any]:
    """Every population in a process of its own."""
    rows = []
    for clients in POPULATIONS:
        command = [sys.executable, "-m", "benchmarks.scaling", "--population", str(clients)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows.append(json.loads(done.stdout))
        print(done.stdout.strip(), flush=True)
    return {"population": rows, "population_date": str(date.today())}


if __name__ == "__main__":
    if sys.argv[1] == "--population":
        print(json.dumps(population(int(sys.argv[2]))))
    elif sys.argv[1] == "--populations":
        file = Path(sys.argv[2])
        figures.keep(file, json.loads(file.read_text()) | populations())
    else:
        main(sys.argv[1])
