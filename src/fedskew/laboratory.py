"""What stays the same through a run: the data on the device, its partition, the network, and each round's cohort."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedskew import measure, models, rng
from fedskew.algorithms import SGD, State
from fedskew.data import datasets, transforms
from fedskew.data.dataset import Dataset, Transform
from fedskew.engine import batches
from fedskew.engine.batches import Cohort, Plan
from fedskew.engine.choose import Engine, Precision, check, set_precision
from fedskew.engine.evaluate import Scores, evaluate
from fedskew.engine.problem import Problem, weights
from fedskew.engine.seeded import with_seeded_dropout
from fedskew.errors import FedskewError
from fedskew.run import Run
from fedskew.tree import Tree


@dataclass(frozen=True)
class Laboratory:
    """A run's data, clients and network, ready on the device."""

    run: Run
    device: torch.device
    problem: Problem
    initial: tuple[Tree, Tree]  # weights and statistics before the first round
    plan: Plan
    parts: list[NDArray[np.int64]]
    emd: NDArray[np.float64]  # (N,)
    x_test: Tensor
    y_test: Tensor
    classes: int

    @classmethod
    def of(
        cls,
        run: Run,
        data: Dataset | None,
        device: str,
        engine: Engine,
        precision: Precision,
        beside: Laboratory | None = None,
    ) -> Laboratory:
        """Load, split and move everything; all mistakes in a spec that need the data show here.

        A run that trains `beside` another shares its tensors on the device.
        """
        place = find_device(device)
        check(engine, precision, place)
        set_precision(precision, place)
        data = datasets.load(run.data) if data is None else data
        parts = split(run, data)
        transform: Transform = data.transform if run.transform == "auto" else run.transform
        shape = transforms.output_shape(transform, data.shape)
        factory = models.find(run.model, data.name) if isinstance(run.model, str) else run.model
        model = with_seeded_dropout(models.build(factory, shape, len(data.classes), run.seed)).to(place)
        counts = measure.counts(data.y, parts, len(data.classes))
        problem = Problem(
            model=model,
            x=_tensor(data.x, place) if beside is None else beside.problem.x,
            y=_tensor(data.y, place) if beside is None else beside.problem.y,
            transform=transform,
            weight_decay=run.weight_decay,
            momentum=run.momentum,
            half=precision == "bf16",
        )
        return cls(
            run=run,
            device=place,
            problem=problem,
            initial=weights(model),
            plan=Plan(run.epochs, run.batch, run.drop_last, transform, data.shape),
            parts=parts,
            emd=measure.emd(counts),
            x_test=_tensor(data.x_test, place) if beside is None else beside.x_test,
            y_test=_tensor(data.y_test, place) if beside is None else beside.y_test,
            classes=len(data.classes),
        )

    def sample(self, t: int) -> NDArray[np.int64]:
        """The clients of round t, in ascending order."""
        population = len(self.parts)
        number = self.run.cohort or max(1, round(self.run.participation * population))
        if number > population:
            raise FedskewError(f"cohort = {number}, but there are only {population} clients; lower it")
        return np.sort(rng.stream(self.run.seed, "sample", t).choice(population, number, replace=False))

    def prepared(self, t: int) -> tuple[NDArray[np.int64], Cohort]:
        """The clients of round t and what they will train on."""
        chosen = self.sample(t)
        return chosen, self.pool(t, chosen) if isinstance(self.run.algorithm, SGD) else self.cohort(t, chosen)

    def cohort(self, t: int, chosen: NDArray[np.int64]) -> Cohort:
        """The batches of the chosen clients in round t."""
        parts = [self.parts[k] for k in chosen]
        return batches.cohort(self.plan, chosen.tolist(), parts, self.run.lr_of(t), self.run.seed, t, self.device)

    def pool(self, t: int, chosen: NDArray[np.int64]) -> Cohort:
        """As many examples as the chosen clients hold, drawn from everybody's, in batches of K x B."""
        number = sum(len(self.parts[k]) for k in chosen)
        everything = np.concatenate(self.parts)
        part = rng.stream(self.run.seed, "pool", t).choice(everything, number, replace=False)
        plan = replace(self.plan, batch=self.plan.batch and self.plan.batch * len(chosen))
        return batches.cohort(plan, [-1], [part], self.run.lr_of(t), self.run.seed, t, self.device)

    def test(self, state: State) -> Scores:
        """The test scores of a state."""
        return evaluate(self.problem, state["w"], state["stats"], self.x_test, self.y_test, self.classes)


def split(run: Run, data: Dataset) -> list[NDArray[np.int64]]:
    """The clients' indices into the training set."""
    used = np.arange(len(data.y))
    if run.examples is not None:
        if run.examples > len(data.y):
            raise FedskewError(f"examples = {run.examples}, but {data.name} has only {len(data.y)}; lower it")
        used = np.sort(rng.stream(run.seed, "examples").choice(len(data.y), run.examples, replace=False))
    groups = None if data.groups is None else data.groups[used]
    parts = run.partition(data.y[used], rng.stream(run.seed, "partition"), groups)
    empty = next((k for k, part in enumerate(parts) if len(part) == 0), None)
    if empty is not None:
        raise FedskewError(f"partition {run.partition}: client {empty} has no example; use fewer clients or min_size")
    return parts if run.examples is None else [used[part] for part in parts]


def find_device(name: str) -> torch.device:
    """`auto` is the GPU if there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as e:
        raise FedskewError(f"device {name!r} cannot be used here ({str(e).splitlines()[0]}); try auto or cpu") from e
    return device


def _tensor(a: NDArray[Any], device: torch.device) -> Tensor:
    """On the device; a read-only array, as files give, is copied first, since torch cannot promise not to write."""
    return torch.from_numpy(np.require(a, requirements=["C", "W"])).to(device)
