"""What stays the same through a run: the data on the device, its partition, the network, and each round's cohort."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedskew import measure, models, prepare, rng, tree
from fedskew.algorithms import SGD
from fedskew.algorithms.moon import Moon
from fedskew.data import datasets, transforms
from fedskew.data.dataset import Dataset, Transform
from fedskew.data.partition import Parts
from fedskew.engine import batches, features
from fedskew.engine.batches import Cohort, Plan
from fedskew.engine.choose import Engine, Precision, check, set_precision
from fedskew.engine.problem import Problem, weights
from fedskew.engine.seeded import with_seeded_dropout
from fedskew.errors import FedskewError
from fedskew.run import Run
from fedskew.sides import MEASURED, Holding, drawn, merged, rest_set, sharing, warm_set
from fedskew.tree import Tree


@dataclass(frozen=True)
class Laboratory:
    """A run's data, clients and network, ready on the device."""

    run: Run
    device: torch.device
    problem: Problem
    initial: tuple[Tree, Tree]  # weights and statistics before the first round
    plan: Plan
    parts: Parts  # private data
    shared: NDArray[np.int64] | None  # G
    warm: NDArray[np.int64] | None  # what warm-up trains on
    labels: NDArray[np.int64]
    population: NDArray[np.int64]  # (C,) label counts of all private data
    test: Examples  # the test set, or the validation split
    rest: Examples | None  # what warm-up is scored on, if it ends at an accuracy
    classes: int
    example_bytes: int
    known_emd: dict[int, float] = field(default_factory=dict, kw_only=True)  # of clients that were asked for

    @classmethod
    def of(
        cls,
        run: Run,
        data: Dataset | None,
        device: str,
        engine: Engine,
        precision: Precision,
        beside: Laboratory | None = None,
        holding: Holding | None = None,
    ) -> Laboratory:
        """Load, split and move everything; all mistakes in a spec that need the data show here.

        A run that trains `beside` another shares its tensors on the device. `holding` says who holds what where the
        run's partition does not: in a federation.
        """
        place = find_device(device)
        check(engine, precision, place)
        set_precision(precision, place)
        data = datasets.load(run.data) if data is None else data
        holding = holding or Holding.of(run, data)
        parts, sides = holding.parts, holding.sides
        transform: Transform = data.transform if run.transform == "auto" else run.transform
        shape = transforms.output_shape(transform, data.shape)
        factory = models.find(run.model, data.name) if isinstance(run.model, str) else run.model
        model = with_seeded_dropout(models.build(factory, shape, len(data.classes), run.seed)).to(place)
        if isinstance(run.algorithm, Moon):
            features.head(model)  # which refuses a network without features
        classes, sampling = len(data.classes), getattr(run.algorithm, "sampling", "shuffled")
        problem = Problem(
            model=model,
            x=_tensor(data.x, place) if beside is None else beside.problem.x,
            y=_tensor(data.y, place) if beside is None else beside.problem.y,
            transform=transform,
            weight_decay=run.weight_decay,
            momentum=run.momentum,
            half=precision == "bf16",
        )
        if beside is not None and _examined_on(run) == _examined_on(beside.run):
            test = beside.test  # runs that share it are scored in one computation
        else:
            test = _test(data, sides.validation, problem, place)
        shared = drawn(run, data, sides.held, holding.examples)
        warm = warm_set(run, sides, shared, len(data.y))
        rest = rest_set(run, sides, warm, classes, len(data.y))
        return cls(
            run=run,
            device=place,
            problem=problem,
            initial=weights(model),
            plan=Plan(
                *(run.epochs, run.batch, run.drop_last, transform, data.shape),
                balance=data.y if sampling == "balanced" else None,
                momentum=run.momentum,
                counted=(data.y, classes) if getattr(run.algorithm, "counts_labels", False) else None,
            ),
            parts=parts,
            shared=shared,
            warm=warm,
            labels=data.y,
            population=measure.population(data.y, parts, classes),
            test=test,
            rest=None if rest is None else _chosen(problem, rest),
            classes=classes,
            example_bytes=data.x[:1].nbytes + data.y[:1].nbytes,
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
        clients = chosen.tolist()
        received = 0 if self.shared is None or self.run.share is None else self.run.share.received(len(self.shared))
        population = len(self.parts), len(self.parts.flat) + received * len(self.parts)
        parts = [self.part(k) for k in clients]
        lr = self.run.lr_of(t)
        return batches.cohort(self.plan, clients, parts, lr, self.run.seed, t, self.device, population)

    def pool(self, t: int, chosen: NDArray[np.int64]) -> Cohort:
        """As many examples as the chosen clients hold, drawn from everybody's, in batches of K x B."""
        number = sum(len(self.part(k)) for k in chosen)
        everything = self.parts.flat
        if self.shared is not None:
            everything = np.concatenate([self.part(k) for k in range(len(self.parts))])
        part = rng.stream(self.run.seed, "pool", t).choice(everything, number, replace=False)
        plan = replace(self.plan, batch=self.plan.batch and self.plan.batch * len(chosen))
        return batches.cohort(plan, [-1], [part], self.run.lr_of(t), self.run.seed, t, self.device)

    def part(self, k: int) -> NDArray[np.int64]:
        """What client k trains on: its private data and its own draw of the shared set."""
        return merged(self.run, self.parts, self.shared, [k])[0]

    def given(self, initial: Tree) -> tuple[Tree, Tree]:
        """Weights and statistics to begin with, checked against the network."""
        for name, leaf in (self.initial[0] | self.initial[1]).items():
            if name not in initial or initial[name].shape != leaf.shape:
                found = f"has shape {tuple(initial[name].shape)}" if name in initial else "is missing"
                raise FedskewError(
                    f"start {self.run.start}: {name} {found}, but the network's is {tuple(leaf.shape)}; "
                    "these are another network's weights"
                )
        w, stats = (tree.apply(lambda a, b: a.to(b), {k: initial[k] for k in own}, own) for own in self.initial)
        return w, stats

    def warm_up(self, t: int) -> Cohort:
        """Pass t over what warm-up trains on, as one client in batches of B."""
        assert self.warm is not None
        plan = replace(self.plan, epochs=1, balance=None, counted=None)
        return batches.cohort(plan, [-2], [self.warm], self.run.lr, self.run.seed, -t, self.device)

    def emd(self, clients: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of each of these clients, shared data included; the population is all private data."""
        if unknown := [k for k in clients.tolist() if k not in self.known_emd]:
            found = prepare.realised_emd(self.labels, [self.part(k) for k in unknown], self.population)
            self.known_emd.update(zip(unknown, found.tolist(), strict=True))
        return np.array([self.known_emd[k] for k in clients.tolist()])

    def mean_emd(self) -> float:
        """Over the clients (a thousand of them at most), shared data included."""
        return float(self.emd(np.arange(min(len(self.parts), MEASURED))).mean())

    def sharing(self) -> dict[str, Any]:
        """What was shared and what it did to the skew."""
        return sharing(self.run, self.labels, self.parts, self.shared, self.classes, self.example_bytes)


@dataclass(frozen=True)
class Examples:
    """What weights are scored on."""

    x: Tensor
    y: Tensor


def _examined_on(run: Run) -> tuple[Any, ...]:
    """What decides the examples that a run is scored on: the test set is everybody's, a validation split is drawn."""
    return (run.validation, run.examples, run.seed) if run.validation else ()


def _test(data: Dataset, validation: NDArray[np.int64], problem: Problem, device: torch.device) -> Examples:
    if len(validation):
        return _chosen(problem, validation)
    return Examples(_tensor(data.x_test, device), _tensor(data.y_test, device))


def _chosen(problem: Problem, index: NDArray[np.int64]) -> Examples:
    at = torch.from_numpy(index).to(problem.x.device)
    return Examples(problem.x[at], problem.y[at])


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
