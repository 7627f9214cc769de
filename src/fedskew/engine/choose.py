"""The way cohorts are trained: picked by device and shape, or by the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import torch

from fedskew import tree
from fedskew.data.transforms import output_shape
from fedskew.engine import loop, stacked, threaded, threads
from fedskew.engine.batches import joined, parted
from fedskew.engine.pick import pick
from fedskew.engine.problem import Problem, Task, Trained
from fedskew.errors import FedskewError

Engine = Literal["auto", "stacked", "threaded", "loop"]
Precision = Literal["tf32", "bf16", "fp32"]
Many = Callable[[Sequence[Task]], list[Trained]]

ENGINES: tuple[Engine, ...] = ("auto", "stacked", "threaded", "loop")
PRECISIONS: tuple[Precision, ...] = ("tf32", "bf16", "fp32")
HALF = ("avx512_bf16", "amx_bf16", "bf16")  # instructions of Intel's and AMD's processors, and of ARM's
ONE_BY_ONE = {"threaded": threaded.local, "loop": loop.local}


def check(engine: str, precision: str, device: torch.device) -> None:
    """Refuse what this device cannot do."""
    if engine not in ENGINES:
        raise FedskewError(f"engine {engine!r} is not known: choose one of {', '.join(ENGINES)}")
    if precision not in PRECISIONS:
        raise FedskewError(f"precision {precision!r} is not known: choose one of {', '.join(PRECISIONS)}")
    gpu = device.type == "cuda"
    if engine == "threaded" and gpu:
        raise FedskewError("engine threaded is for a CPU; on a GPU use stacked or auto")
    fast = "stacked" if gpu else "threaded"
    if precision == "bf16" and engine not in ("auto", fast):
        raise FedskewError(f"precision bf16 on {device.type} needs the engine {fast}, not {engine}; use auto or tf32")
    if precision == "bf16" and not gpu and not any(torch.cpu.get_capabilities().get(name) for name in HALF):
        raise FedskewError(  # emulated it took 2.4 times as long with AVX512, minutes a round with AVX2
            f"precision bf16 on a CPU needs instructions for it ({', '.join(HALF)}), which this one lacks; use tf32"
        )


def set_precision(precision: Precision, device: torch.device) -> None:
    """How a GPU multiplies single precision: rounded to TF32 (19 bits) unless all of it is asked for."""
    if device.type == "cuda":
        torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
        torch.backends.cudnn.allow_tf32 = precision != "fp32"
        torch.backends.cudnn.deterministic = True  # the same rows from run to run


def many_of(problem: Problem, engine: Engine) -> Many:
    """`many(tasks)` for this problem: every cohort trained, in one computation where that is the faster way."""
    if problem.x.is_cuda and engine != "loop":
        from fedskew.engine.graphed import Graphed

        return Fitting(Graphed(problem))
    threads.keep_memory()
    flops = threads.step_flops(problem.model, _input_shape(problem), batch=1)

    def many(tasks: Sequence[Task]) -> list[Trained]:
        batch = max(task.cohort.index.shape[2] for task in tasks)
        way: str = engine
        if engine == "auto":
            way = pick(problem, joined([task.cohort for task in tasks]))
        if way in ONE_BY_ONE:
            with threads.for_steps_of(flops * batch if way == "loop" else threads.SMALL_STEP):
                return [ONE_BY_ONE[way](problem, task) for task in tasks]
        clients = sum(len(task.cohort) for task in tasks)
        with threads.for_steps_of(flops * batch * clients, threads.SMALL_STACK):
            return stacked.many(problem, tasks)

    return many


class Fitting:
    """Halves a cohort that does not fit the device's memory; clients are independent, so the result is the same."""

    def __init__(self, many: Many) -> None:
        self.many = many
        self.most = 1 << 62  # clients known to fit

    def __call__(self, tasks: Sequence[Task]) -> list[Trained]:
        """All tasks in as few goes as memory allows."""
        clients = sum(len(task.cohort) for task in tasks)
        if clients <= self.most:
            try:
                return self.many(tasks)
            except torch.OutOfMemoryError:
                if clients == 1:
                    raise FedskewError("one client does not fit the GPU's memory; lower batch") from None
                self.most = (clients + 1) // 2
            self._forget()
        if len(tasks) > 1:
            half = len(tasks) // 2
            return self(tasks[:half]) + self(tasks[half:])
        task = tasks[0]
        (a,), (b,) = (self([part]) for part in _parted(task, min(self.most, clients - 1)))
        w, stats = (tree.apply(lambda x, y: torch.cat([x, y]), *pair) for pair in ((a.w, b.w), (a.stats, b.stats)))
        return [Trained(w, stats, torch.cat([a.loss, b.loss]))]

    def _forget(self) -> None:
        programs = getattr(self.many, "programs", None)
        if programs is not None:
            programs.clear()
        torch.cuda.empty_cache()


def _parted(task: Task, at: int) -> tuple[Task, Task]:
    first, rest = parted(task.cohort, at)
    return (
        replace(task, cohort=first, terms=task.terms.part(slice(None, at))),
        replace(task, cohort=rest, terms=task.terms.part(slice(at, None))),
    )


def _input_shape(problem: Problem) -> tuple[int, ...]:
    return output_shape(problem.transform, tuple(problem.x.shape[1:]))
