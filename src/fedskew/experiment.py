"""train(run) -> rows: the only loop over communication rounds."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedskew import measure, models, rng, tree
from fedskew.algorithms import SGD, State
from fedskew.data import datasets, transforms
from fedskew.data.dataset import Dataset, Transform
from fedskew.engine import batches, loop, threads
from fedskew.engine.batches import Cohort, Plan
from fedskew.engine.evaluate import Scores, evaluate
from fedskew.engine.problem import Problem, Trained, weights
from fedskew.engine.seeded import with_seeded_dropout
from fedskew.errors import FedskewError
from fedskew.run import Run
from fedskew.tree import Tree

__all__ = ["Row", "Run", "train"]


@dataclass(frozen=True)
class Row:
    """One communication round. Test scores are None in a round that was not evaluated."""

    round: int
    lr: float
    loss: float  # mean training loss over the round's examples
    accuracy: float | None
    test_loss: float | None
    per_class: tuple[float, ...] | None
    divergence: dict[str, Any] | None  # see measure.divergence; from a matched SGD run
    emd: float  # mean over the round's clients
    clients: int
    examples: int
    bytes_up: int
    bytes_down: int
    seconds: float
    state: State = field(default_factory=dict, repr=False, compare=False)  # all that the next round needs

    @property
    def diverged(self) -> bool:
        """The training loss is no longer a number; there will be no further row."""
        return not math.isfinite(self.loss)

    def record(self) -> dict[str, Any]:
        """The row as a JSON document, without the weights."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "state"}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Row:
        """The row that `record` came from, without the weights."""
        per_class = record["per_class"]
        return cls(**(record | {"per_class": None if per_class is None else tuple(per_class)}))


def train(
    run: Run,
    *,
    data: Dataset | None = None,
    device: str = "auto",
    start: State | None = None,
    first_round: int = 1,
) -> Iterator[Row]:
    """Train and give one row a round; `start=row.state, first_round=row.round + 1` goes on exactly where row was."""
    lab = _Laboratory.of(run, data, device)
    method, local = run.algorithm, lab.local
    w, stats = weights(lab.problem.model)
    state = method.init(w, stats) if start is None else {"stats": {}, **_moved(start, lab.device)}
    if start is None and run.divergence:
        state |= {"sgd.w": w, "sgd.stats": stats}
    for t in range(first_round, run.rounds + 1):
        began = time.perf_counter()
        chosen = lab.sample(t)
        cohort = lab.pool(t, chosen) if isinstance(method, SGD) else lab.cohort(t, chosen)
        twin = {key: state.pop(key, {}) for key in ("sgd.w", "sgd.stats")}
        trained = local(state["w"], state["stats"], cohort)
        state = method.step(state, cohort, trained)
        divergence = None
        if run.divergence:
            pool = lab.pool(t, chosen)
            centralised = SGD().step({}, pool, local(twin["sgd.w"], twin["sgd.stats"], pool))
            divergence = measure.divergence(state["w"], centralised["w"])
            state |= {"sgd.w": centralised["w"], "sgd.stats": centralised["stats"]}
        loss = float((trained.loss * cohort.n).sum() / cohort.n.sum())
        scores = lab.test(state) if t % run.eval_every == 0 or t == run.rounds or not math.isfinite(loss) else None
        sent = len(chosen) * (tree.nbytes(state["w"]) + tree.nbytes(state["stats"]))
        yield Row(
            round=t,
            lr=cohort.lr,
            loss=loss,
            accuracy=scores.accuracy if scores else None,
            test_loss=scores.loss if scores else None,
            per_class=scores.per_class if scores else None,
            divergence=divergence,
            emd=0.0 if isinstance(method, SGD) else float(lab.emd[chosen].mean()),
            clients=len(chosen),
            examples=int(cohort.mask.sum()),
            bytes_up=sent,
            bytes_down=sent,
            seconds=time.perf_counter() - began,
            state=dict(state),
        )
        if not math.isfinite(loss):
            return


@dataclass(frozen=True)
class _Laboratory:
    """What stays the same through a run: the data on the device, its partition and the network."""

    run: Run
    device: torch.device
    problem: Problem
    plan: Plan
    parts: list[NDArray[np.int64]]
    emd: NDArray[np.float64]  # (N,)
    x_test: Tensor
    y_test: Tensor
    classes: int
    flops: float  # of a training step on one example

    @classmethod
    def of(cls, run: Run, data: Dataset | None, device: str) -> _Laboratory:
        """Load, split and move everything; all mistakes in a spec that need the data show here."""
        place = find_device(device)
        data = datasets.load(run.data) if data is None else data
        x, y, parts = split(run, data)
        transform: Transform = data.transform if run.transform == "auto" else run.transform
        shape = transforms.output_shape(transform, data.shape)
        factory = models.find(run.model, data.name) if isinstance(run.model, str) else run.model
        model = with_seeded_dropout(models.build(factory, shape, len(data.classes), run.seed)).to(place)
        counts = measure.counts(y, parts, len(data.classes))
        return cls(
            run=run,
            device=place,
            problem=Problem(
                model=model,
                x=torch.from_numpy(x).to(place),
                y=torch.from_numpy(y).to(place),
                transform=transform,
                weight_decay=run.weight_decay,
                momentum=run.momentum,
            ),
            plan=Plan(run.epochs, run.batch, run.drop_last, transform, data.shape),
            parts=parts,
            emd=measure.emd(counts),
            x_test=torch.from_numpy(data.x_test).to(place),
            y_test=torch.from_numpy(data.y_test).to(place),
            classes=len(data.classes),
            flops=threads.step_flops(model, shape, batch=1),
        )

    def local(self, w: Tree, stats: Tree, cohort: Cohort) -> Trained:
        """The way this run trains a cohort."""
        with threads.for_steps_of(self.flops * cohort.index.shape[2]):
            return loop.local(self.problem, w, stats, cohort)

    def sample(self, t: int) -> NDArray[np.int64]:
        """The clients of round t, in ascending order."""
        population = len(self.parts)
        number = self.run.cohort or max(1, round(self.run.participation * population))
        if number > population:
            raise FedskewError(f"cohort = {number}, but there are only {population} clients; lower it")
        return np.sort(rng.stream(self.run.seed, "sample", t).choice(population, number, replace=False))

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


def split(run: Run, data: Dataset) -> tuple[NDArray[Any], NDArray[np.int64], list[NDArray[np.int64]]]:
    """The training examples a run uses and the clients' indices into them."""
    x, y, groups = data.x, data.y, data.groups
    if run.examples is not None:
        if run.examples > len(y):
            raise FedskewError(f"examples = {run.examples}, but {data.name} has only {len(y)}; lower it")
        used = np.sort(rng.stream(run.seed, "examples").choice(len(y), run.examples, replace=False))
        x, y, groups = x[used], y[used], None if groups is None else groups[used]
    parts = run.partition(y, rng.stream(run.seed, "partition"), groups)
    empty = next((k for k, part in enumerate(parts) if len(part) == 0), None)
    if empty is not None:
        raise FedskewError(f"partition {run.partition}: client {empty} has no example; use fewer clients or min_size")
    return x, y, parts


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


def _moved(state: State, device: torch.device) -> State:
    return {key: tree.apply(lambda x: x.to(device), leaves) for key, leaves in state.items()}
