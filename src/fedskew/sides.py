"""The training set taken apart: what clients hold, the holdout, the validation split, the shared set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from fedskew import measure, prepare, rng
from fedskew.data.dataset import Dataset, Labels
from fedskew.data.partition import AnyPartition, Partition, Parts
from fedskew.errors import FedskewError
from fedskew.prepare import Share

if TYPE_CHECKING:  # who holds what is asked without torch, too
    from fedskew.run import Run

AT_LEAST, AT_MOST = 5, 10_000  # examples of a class, and in all, that say how far warm-up is; Zhao's holdout has 10,000
MEASURED = 1000  # clients whose EMD is taken, at most


@dataclass(frozen=True)
class Division:
    """The keys of a run that decide who holds what, and nothing else of it: no method, no network."""

    partition: AnyPartition
    seed: int = 0
    examples: int | None = None
    validation: float = 0.0
    held_out: float = 0.0
    share: Share | None = None

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Division:
        """That of a run's spec as the store has it."""
        share = Share(**spec["share"]) if spec.get("share") else None
        return cls(
            partition=TypeAdapter[AnyPartition](Partition).validate_python(spec["partition"]),
            seed=spec.get("seed", 0),
            examples=spec.get("examples"),
            validation=spec.get("validation", 0.0),
            held_out=prepare.held_out(spec.get("holdout"), share),
            share=share,
        )


@dataclass(frozen=True)
class Sides:
    """The training set in three: what clients share out among them, the holdout, and the validation split."""

    clients: NDArray[np.int64] | None  # None: all of it
    held: NDArray[np.int64]
    validation: NDArray[np.int64]

    def of_clients(self, examples: int) -> NDArray[np.int64]:
        """What clients share out, of a training set with so many examples."""
        return np.arange(examples) if self.clients is None else self.clients


@dataclass(frozen=True)
class Holding:
    """Who holds what of a training set."""

    sides: Sides
    parts: Parts
    examples: int  # |D|, all that clients hold

    @classmethod
    def of(cls, run: Run, data: Dataset) -> Holding:
        """In a simulation: everything is here, and the partition deals it out."""
        parts = split(run, data)
        return cls(sides_of(run, data), parts, len(parts.flat))

    @classmethod
    def elsewhere(cls, run: Run, data: Dataset, clients: int, examples: int) -> Holding:
        """Clients hold data that is not here; all that is here, less the validation split, may be shared."""
        used, validation = _validation(run, data)
        nothing = np.empty(0, np.int64)
        held = np.arange(len(data.y)) if used is None else used
        return cls(Sides(nothing, held, validation), Parts(nothing, np.zeros(clients, np.int64)), examples)

    @classmethod
    def alone(cls, client: int, examples: int) -> Holding:
        """All that is here is one client's, whose number among the others decides its random streams."""
        everything, nothing = np.arange(examples), np.empty(0, np.int64)
        sizes = np.zeros(client + 1, np.int64)
        sizes[client] = examples
        return cls(Sides(None, nothing, nothing), Parts(everything, sizes), examples)


def split(run: Run | Division, data: Dataset | Labels) -> Parts:
    """The clients' indices into the training set."""
    y, groups = data.y, data.groups
    used = sides_of(run, data).clients
    if used is not None:
        y, groups = y[used], None if groups is None else groups[used]
    parts = run.partition(y, rng.stream(run.seed, "partition"), groups)
    sizes = parts.sizes
    if not sizes.all():
        raise FedskewError(
            f"partition {run.partition}: client {sizes.argmin()} has no example; use fewer clients or min_size"
        )
    return parts if used is None else Parts(used[parts.flat], sizes)


def sides_of(run: Run | Division, data: Dataset | Labels) -> Sides:
    """The part that is used, less the validation split, less the holdout."""
    used, validation = _validation(run, data)
    clients, held = _apart(data, used, run.held_out, rng.stream(run.seed, "holdout"))
    return Sides(clients, held, validation)


def _validation(run: Run | Division, data: Dataset | Labels) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    """The part that is used (None: all of it), and the validation split."""
    used = None
    if run.examples is not None:
        if run.examples > len(data.y):
            raise FedskewError(f"examples = {run.examples}, but {data.name} has only {len(data.y)}; lower it")
        used = np.sort(rng.stream(run.seed, "examples").choice(len(data.y), run.examples, replace=False))
    used, validation = _apart(data, used, run.validation, rng.stream(run.seed, "validation"))
    if run.validation and len(validation) == 0:
        examples = run.examples or len(data.y)
        raise FedskewError(f"validation = {run.validation} of {examples} examples is not one of them; raise it")
    return used, validation


def _apart(
    data: Dataset | Labels, used: NDArray[np.int64] | None, fraction: float, generator: np.random.Generator
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    if not fraction:
        return used, np.empty(0, np.int64)
    used = np.arange(len(data.y)) if used is None else used
    kept, held = prepare.hold_out(data.y[used], fraction, generator)
    return used[kept], used[held]


def shared_set(run: Run | Division, data: Dataset | Labels, parts: Parts) -> NDArray[np.int64] | None:
    """G as indices into the training set; D is what the clients hold."""
    return drawn(run, data, sides_of(run, data).held, len(parts.flat)) if run.share else None


def drawn(
    run: Run | Division, data: Dataset | Labels, held: NDArray[np.int64], examples: int
) -> NDArray[np.int64] | None:
    """G from what is held out, for clients that hold so many examples."""
    if run.share is None:
        return None
    return held[run.share.draw(data.y[held], examples, len(data.classes), rng.stream(run.seed, "shared"))]


def merged(
    run: Run | Division, parts: Parts, shared: NDArray[np.int64] | None, clients: Iterable[int]
) -> list[NDArray[np.int64]]:
    """What these clients train on: their private data and their own draws of the shared set."""
    if shared is None or run.share is None:
        return [parts[k] for k in clients]
    return [run.share.merged(parts[k], shared, rng.stream(run.seed, "share", k)) for k in clients]


def sharing(
    run: Run | Division, y: NDArray[np.int64], parts: Parts, shared: NDArray[np.int64] | None, classes: int, size: int
) -> dict[str, Any]:
    """What is shared, in examples of `size` bytes, and what it does to the skew; nothing without a shared set.

    EMDs are means over clients, a thousand of them at most; the population is all private data.
    """
    if shared is None or run.share is None:
        return {}
    few = range(min(len(parts), MEASURED))
    population = measure.population(y, parts, classes)
    counts = measure.counts(y, parts[: len(few)], classes)
    received = run.share.received(len(shared))
    held = np.bincount(y[shared], minlength=classes)
    return {
        "shared": len(shared),
        "received": received,
        "bytes": received * size * len(parts),
        "emd_before": float(measure.emd(counts, population).mean()),
        "emd_predicted": float(prepare.mixed_emd(counts, held, received, population).mean()),
        "emd": float(prepare.realised_emd(y, merged(run, parts, shared, few), population).mean()),
    }


def warm_set(run: Run, sides: Sides, shared: NDArray[np.int64] | None, examples: int) -> NDArray[np.int64] | None:
    """What warm-up trains on: G, or a random part of everything that is not for validation."""
    if run.warm_up is None or run.warm_up.fraction is None:
        return shared if run.warm_up else None
    everything = np.concatenate([sides.of_clients(examples), sides.held])
    number = max(1, round(run.warm_up.fraction * len(everything)))
    return np.sort(rng.stream(run.seed, "warm-up").choice(everything, number, replace=False))


def rest_set(
    run: Run, sides: Sides, warm: NDArray[np.int64] | None, classes: int, examples: int
) -> NDArray[np.int64] | None:
    """Fresh examples that say how far warm-up is: the holdout's or, where it has too few, clients'; never test ones."""
    if run.warm_up is None or run.warm_up.until is None or warm is None:
        return None
    for side in (sides.held, sides.of_clients(examples)):
        fresh = np.setdiff1d(side, warm)
        if len(fresh) >= AT_LEAST * classes:
            return rng.stream(run.seed, "rest").permutation(fresh)[:AT_MOST]
    raise FedskewError(
        f"warm-up trains on {len(warm)} examples and leaves too few to say when it has reached {run.warm_up.until:g}; "
        "lower its fraction, or give passes: rounds=5"
    )
