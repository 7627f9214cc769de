"""train(run) -> rows: the only loop over communication rounds."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator, Sequence
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
from fedskew.engine import batches
from fedskew.engine.batches import Cohort, Plan
from fedskew.engine.choose import Engine, Precision, check, many_of, set_precision
from fedskew.engine.evaluate import Scores, evaluate
from fedskew.engine.problem import Problem, Task, Trained, weights
from fedskew.engine.seeded import with_seeded_dropout
from fedskew.errors import FedskewError
from fedskew.run import Run
from fedskew.tree import Tree

__all__ = ["Row", "Run", "train", "train_together"]


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
    engine: Engine = "auto",
    precision: Precision = "tf32",
    start: State | None = None,
    first_round: int = 1,
) -> Iterator[Row]:
    """Train and give one row a round; `start=row.state, first_round=row.round + 1` goes on exactly where row was."""
    lab = _Laboratory.of(run, data, device, engine, precision)
    rounds = _rounds(lab, start, first_round)
    many = many_of(lab.problem, engine)
    answer: Trained | None = None
    while (said := _next(rounds, answer)) is not None:
        if isinstance(said, Row):
            answer = None
            yield said
        else:
            (answer,) = many([said])


def train_together(
    runs: Sequence[Run],
    *,
    data: Dataset | None = None,
    device: str = "auto",
    engine: Engine = "auto",
    precision: Precision = "tf32",
) -> Iterator[tuple[int, Row]]:
    """Train runs of one shape as one: their cohorts share every step. Gives (which run, row) as rows come.

    Seeds, partitions, learning rates and methods may differ; each run's rows are those that it would have alone.
    """
    if not runs:
        return
    for run in runs[1:]:
        if changed := [key for key in _SHAPE if getattr(run, key) != getattr(runs[0], key)]:
            raise FedskewError(f"runs that train together differ in {', '.join(changed)}; train them apart")
    data = datasets.load(runs[0].data) if data is None else data
    first = _Laboratory.of(runs[0], data, device, engine, precision)
    labs = [first, *(_Laboratory.of(run, data, device, engine, precision, beside=first) for run in runs[1:])]
    many = many_of(first.problem, engine)
    waiting = {i: _rounds(lab, None, 1) for i, lab in enumerate(labs)}
    answers: dict[int, Trained] = {}
    while waiting:
        tasks: dict[int, Task] = {}
        for i, rounds in list(waiting.items()):
            said = _next(rounds, answers.pop(i, None))
            while isinstance(said, Row):
                yield i, said
                said = _next(rounds, None)
            if said is None:
                del waiting[i]
            else:
                tasks[i] = said
        for alike in _by_batch(tasks):
            answers |= dict(zip(alike, many([tasks[i] for i in alike]), strict=True))


# What a stacked step cannot vary from client to client.
_SHAPE = ("data", "model", "transform", "batch", "epochs", "drop_last", "momentum", "weight_decay")


def _by_batch(tasks: dict[int, Task]) -> list[list[int]]:
    """Tasks of the same batch size: padding a batch of B to one of K x B would waste most of it."""
    groups: dict[int, list[int]] = {}
    for i, task in tasks.items():
        groups.setdefault(task.cohort.index.shape[2], []).append(i)
    return list(groups.values())


def _next(rounds: Generator[Task | Row, Trained | None, None], answer: Trained | None) -> Task | Row | None:
    try:
        return rounds.send(answer)
    except StopIteration:
        return None


def _rounds(lab: _Laboratory, start: State | None, first_round: int) -> Generator[Task | Row, Trained | None, None]:
    """The communication rounds: asks for a cohort to be trained by giving a Task, and is sent what came of it."""
    run, method = lab.run, lab.run.algorithm
    state = method.init(*lab.initial) if start is None else {"stats": {}, **_moved(start, lab.device)}
    if start is None and run.divergence:
        state |= {"sgd.w": lab.initial[0], "sgd.stats": lab.initial[1]}
    upcoming = lab.prepared(first_round)
    for t in range(first_round, run.rounds + 1):
        began = time.perf_counter()
        chosen, cohort = upcoming
        twin = {key: state.pop(key, {}) for key in ("sgd.w", "sgd.stats")}
        trained = yield Task(state["w"], state["stats"], cohort)
        assert trained is not None
        state = method.step(state, cohort, trained)
        if t < run.rounds:
            upcoming = lab.prepared(t + 1)  # while a GPU still trains this round: nothing has waited for it yet
        divergence = None
        if run.divergence:
            pool = lab.pool(t, chosen)
            centralised = yield Task(twin["sgd.w"], twin["sgd.stats"], pool)
            assert centralised is not None
            sgd = SGD().step({}, pool, centralised)
            divergence = measure.divergence(state["w"], sgd["w"])
            state |= {"sgd.w": sgd["w"], "sgd.stats": sgd["stats"]}
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
        beside: _Laboratory | None = None,
    ) -> _Laboratory:
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


def _moved(state: State, device: torch.device) -> State:
    return {key: tree.apply(lambda x: x.to(device), leaves) for key, leaves in state.items()}
