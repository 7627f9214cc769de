"""How fast a round is: the plain loop beside the engine's own choice, on this device, in one run."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from fedskew import models, rng, tree
from fedskew.data.dataset import Transform
from fedskew.data.transforms import output_shape
from fedskew.engine import threads
from fedskew.engine.batches import Plan, cohort
from fedskew.engine.choose import Engine, Precision, check, many_of, set_precision
from fedskew.engine.pick import pick
from fedskew.engine.problem import Problem, Task, weights


@dataclass(frozen=True)
class Case:
    """A round: `clients` with `examples` each, of a network on random data of the right shape; `runs` of it at once."""

    name: str
    model: str
    shape: tuple[int, ...]
    transform: Transform
    clients: int
    examples: int
    batch: int
    runs: int = 1
    loop: bool = True  # also time the loop


_CIFAR: dict[str, Any] = {"model": "cifar-cnn", "shape": (3, 32, 32), "transform": "crop-flip"}
_MNIST: dict[str, Any] = {"model": "mnist-cnn", "shape": (1, 28, 28), "transform": "scale"}
CPU = (
    Case("MNIST CNN, 10 x 600, B=10", **_MNIST, clients=10, examples=600, batch=10),
    Case("MNIST CNN, 10 x 600, B=100", **_MNIST, clients=10, examples=600, batch=100),
    Case("CIFAR CNN, 5 x 500, B=64", **_CIFAR, clients=5, examples=500, batch=64),
    Case("softmax regression, 100 x 60, B=10", "softmax", (1, 28, 28), "scale", 100, 60, 10),
)
GPU = (
    Case("CIFAR CNN, 10 x 5,000, B=100", **_CIFAR, clients=10, examples=5000, batch=100),
    Case("CIFAR CNN, 10 x 5,000, B=10", **_CIFAR, clients=10, examples=5000, batch=10),
    Case("CIFAR CNN, 5 x 500, B=64", **_CIFAR, clients=5, examples=500, batch=64),
    Case("CIFAR CNN, 5 x 500, B=64, 20 runs", **_CIFAR, clients=5, examples=500, batch=64, runs=20),
    Case("CIFAR CNN, 10 x 5,000, B=100, 40 runs", **_CIFAR, clients=10, examples=5000, batch=100, runs=40),
)


def measure(
    cases: tuple[Case, ...], device: torch.device, engine: Engine = "auto", precision: Precision = "tf32"
) -> Iterator[dict[str, Any]]:
    """One record a case, as it is measured; times are medians of a round with its batches and its average."""
    check(engine, precision, device)
    set_precision(precision, device)
    peak = peak_flops(device, precision)
    for case in cases:
        yield _measured(case, device, engine, precision, peak)


def _measured(case: Case, device: torch.device, engine: Engine, precision: Precision, peak: float) -> dict[str, Any]:
    problem = problem_of(case, device)
    w, stats = weights(problem.model)
    parts = np.split(np.arange(case.clients * case.examples), case.clients)
    plan = Plan(1, case.batch, False, case.transform, case.shape)

    def tasks(t: int, runs: int) -> list[Task]:
        return [Task(w, stats, cohort(plan, range(case.clients), parts, 0.01, run, t, device)) for run in range(runs)]

    def seconds(many: Any, runs: int, rounds: int) -> float:
        asked = tasks(0, runs)

        def a_round(t: int) -> None:
            nonlocal asked
            for task, trained in zip(asked, many(asked), strict=True):
                with threads.for_mean_of(trained.w):
                    tree.mean(trained.w, task.cohort.n)
            asked = tasks(t + 1, runs)  # while a GPU trains, as an experiment does

        return _seconds(a_round, device, rounds)

    half = replace(problem, half=precision == "bf16")
    ours_s = seconds(many_of(half, engine), case.runs, rounds=5)
    loop_s = (
        seconds(many_of(problem, "loop"), 1, rounds=1 if device.type == "cuda" else 3) * case.runs
        if case.loop
        else None
    )
    flops = _flops_an_example(problem) * case.clients * case.examples * case.runs
    return {
        "name": case.name,
        "path": _path(half, engine, tasks(0, 1)[0]),
        "loop_s": loop_s,
        "ours_s": ours_s,
        "ratio": loop_s / ours_s if loop_s else None,
        "flops": flops / ours_s,
        "peak_share": flops / ours_s / peak,
    }


def problem_of(case: Case, device: torch.device) -> Problem:
    """The case's network and its data."""
    g = rng.stream(0, "bench")
    n = case.clients * case.examples
    model = models.build(models.find(case.model), output_shape(case.transform, case.shape), 10, seed=0).to(device)
    x = torch.from_numpy(g.integers(0, 256, (n, *case.shape), dtype=np.uint8)).to(device)
    return Problem(model, x, torch.from_numpy(g.integers(0, 10, n)).to(device), case.transform)


def _path(problem: Problem, engine: Engine, task: Task) -> str:
    if engine != "auto":
        return engine
    return "stacked" if problem.x.is_cuda else pick(problem, task.cohort)


def _seconds(a_round: Callable[[int], None], device: torch.device, rounds: int) -> float:
    """The median of several rounds, after one that compiles and fills caches."""
    times = []
    for t in range(rounds + 1):
        began = time.perf_counter()
        a_round(t)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def _flops_an_example(problem: Problem) -> float:
    """Forward and backward, as torch counts them; the first layer passes nothing further back."""
    shape = output_shape(problem.transform, tuple(problem.x.shape[1:]))
    model = problem.model.train()
    with FlopCounterMode(display=False) as counter:
        x = torch.zeros(1, *shape, device=problem.x.device)
        cross_entropy(model(x), problem.y[:1]).backward()  # type: ignore[no-untyped-call]
    model.zero_grad()
    total: int = counter.get_total_flops()
    return float(total)


def peak_flops(device: torch.device, precision: Precision = "tf32") -> float:
    """What a large square product reaches here, in the precision that training would use."""
    gpu = device.type == "cuda"
    n = 8192 if gpu else 2048
    a = torch.randn(n, n, device=device, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)

    def five(t: int) -> None:
        for _ in range(5):
            a @ a

    return 2.0 * n**3 * 5 / min(_seconds(five, device, rounds=3) for _ in range(2))


def device_name(device: torch.device) -> str:
    """What the figures were measured on."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{torch.get_num_threads()} {platform.machine()} threads ({torch.backends.cpu.get_cpu_capability()})"
