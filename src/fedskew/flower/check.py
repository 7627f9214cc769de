"""Replies, checked in full: what passes can be averaged, what does not is dropped with a reason."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import MetricRecord, RecordDict
from numpy.typing import NDArray

from fedskew import tree
from fedskew.engine.problem import Trained
from fedskew.flower.wire import ARRAYS, Wrong, finite, metrics_of, unpack
from fedskew.tree import Tree

MOST_EXAMPLES = 10**9  # a client that claims more would outweigh everybody; a federation's machine holds far fewer


@dataclass(frozen=True)
class Hello:
    """What a node says of itself."""

    client: int  # its partition-id
    n: int
    counts: NDArray[np.int64] | None  # (C,) labels, if its operator lets it report them; perhaps with noise


@dataclass(frozen=True)
class Update:
    """One client's weights and batch-norm statistics after a round."""

    arrays: Tree
    n: int
    loss: float

    @property
    def finite(self) -> bool:
        """Whether all of it are numbers."""
        return math.isfinite(self.loss) and finite(self.arrays)


def whole(metrics: MetricRecord, key: str, least: int, most: int) -> int:
    """A whole number of the metrics within bounds."""
    value = metrics.get(key)
    if not isinstance(value, int) or not least <= value <= most:
        raise Wrong(f"{key} is {value!r}, not a whole number from {least} to {most}")
    return value


def hello(content: RecordDict, clients: int, classes: int) -> Hello:
    """A node's first words."""
    metrics = metrics_of(content)
    client = whole(metrics, "partition-id", 0, clients - 1)
    n = whole(metrics, "num-examples", 1, MOST_EXAMPLES)
    found = metrics.get("label-counts")
    if found is None:
        return Hello(client, n, None)
    if not isinstance(found, list) or len(found) != classes or not all(isinstance(c, int) for c in found):
        raise Wrong(f"label-counts are not {classes} whole numbers")
    if max(map(abs, found)) > MOST_EXAMPLES:
        raise Wrong(f"label-counts reach {max(map(abs, found))}, more than {MOST_EXAMPLES}")
    return Hello(client, n, np.array(found, np.int64))


def update(content: RecordDict, like: Tree, round_: int | None = None, n: int | None = None) -> Update:
    """A client's reply to a round; where they are known, it must be that round and that number of examples."""
    metrics = metrics_of(content)
    if round_ is not None and metrics.get("server-round") != round_:
        raise Wrong(f"it is of round {metrics.get('server-round')!r}, not {round_}")
    found = whole(metrics, "num-examples", 1, MOST_EXAMPLES)
    if n is not None and found != n:
        raise Wrong(f"num-examples is {found}, but the node said that it trains on {n}")
    loss = metrics.get("loss", 0.0 if round_ is None else None)  # a foreign client need not tell
    if not isinstance(loss, (int, float)):
        raise Wrong(f"loss is {loss!r}, not a number")
    return Update(unpack(content.get(ARRAYS), like), found, float(loss))


def trained(updates: Sequence[Update], w: Tree) -> Trained:
    """Checked replies with a client axis, in the order given; the names of `w` are weights, the others statistics."""
    stacked = tree.stack(u.arrays for u in updates)
    return Trained(
        w={name: stacked[name] for name in w},
        stats={name: leaf for name, leaf in stacked.items() if name not in w},
        loss=torch.tensor([u.loss for u in updates], dtype=torch.float64, device=next(iter(w.values())).device),
    )
