"""A client on its own machine: the data it holds, what it was given, and a round of training."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray

from fedskew import rng, tree
from fedskew.algorithms.method import Method
from fedskew.data import datasets
from fedskew.data.arrays import read_own
from fedskew.data.dataset import Dataset
from fedskew.data.partition import Nodes
from fedskew.engine.choose import Engine, many_of
from fedskew.engine.problem import Task
from fedskew.engine.terms import Terms
from fedskew.errors import FedskewError
from fedskew.flower import wire
from fedskew.flower.privacy import noisy
from fedskew.flower.wire import Card
from fedskew.laboratory import Laboratory
from fedskew.run import Run
from fedskew.sides import Holding, split
from fedskew.tree import Tree

Arrays = tuple[NDArray[Any], NDArray[np.int64]]  # x (n, ...), y (n,)


@dataclass(frozen=True)
class Node:
    """What a message and the machine's own config (`--node-config`) make of a node."""

    run: Run
    card: Card
    engine: Engine
    config: Mapping[str, Any]

    @classmethod
    def of(cls, content: RecordDict, config: Mapping[str, Any]) -> Node:
        """The node that a message speaks to."""
        about: Any = wire.config_of(content)
        return cls(Run(**json.loads(about["run"])), Card.read(about["data"]), about["engine"], config)

    @property
    def client(self) -> int:
        """Its number among the clients."""
        k = self.config.get("partition-id")
        if not isinstance(k, int) or isinstance(k, bool) or k < 0:
            raise FedskewError(f"partition-id = {k!r}: give each node a number from 0 in its --node-config")
        return k

    def own(self) -> Arrays:
        """The examples that this client holds itself."""
        path = self.config.get("data")
        if isinstance(self.run.partition, Nodes):
            if not path:
                raise FedskewError(
                    'partition nodes: this node has no data; add to its --node-config: data="/path/of/mine.npz"'
                )
            return self._checked(*read_own(Path(str(path)).expanduser(), self.card.classes))
        if path:
            raise FedskewError(
                f"data = {path!r}, but this run deals out {self.run.data} ({self.run.partition}); "
                'set partition = "nodes" in the run, or drop data from --node-config'
            )
        data = datasets.load(self.run.data)
        parts = split(self.run, data)
        if self.client >= len(parts):
            raise FedskewError(f"partition-id = {self.client}, but the run has {len(parts)} clients, counted from 0")
        return data.x[parts[self.client]], data.y[parts[self.client]]

    def _checked(self, x: NDArray[Any], y: NDArray[np.int64]) -> Arrays:
        if x.shape[1:] != self.card.shape or str(x.dtype) != self.card.dtype:
            raise FedskewError(
                f"x holds {x.dtype} of shape {x.shape[1:]}, the federation's examples are {self.card.dtype} of shape "
                f"{self.card.shape}; convert it"
            )
        return x, y

    def label_counts(self, y: NDArray[np.int64]) -> list[int] | None:
        """What this node says of its labels: nothing, unless its operator allows it."""
        allowed, epsilon = self.config.get("report-label-counts", False), self.config.get("epsilon")
        if not isinstance(allowed, bool):
            raise FedskewError(f"report-label-counts = {allowed!r}: it should be true or false")
        if not allowed:
            return None
        counts = np.bincount(y, minlength=len(self.card.classes))
        if epsilon is not None:
            # not from the run's seed: the server knows that, and could take the noise away again
            counts = noisy(counts, float(epsilon), np.random.default_rng(secrets.randbits(128)))
        return [int(c) for c in counts]

    def draw(self, content: RecordDict) -> Arrays:
        """This client's own alpha of the shared set that the server sent."""
        expected = {"x": ((None, *self.card.shape), np.dtype(self.card.dtype)), "y": ((None,), np.dtype(np.int64))}
        shared = wire.unpack_arrays(content.get(wire.ARRAYS), expected)
        assert self.run.share is not None
        everything, nothing = np.arange(len(shared["y"])), np.empty(0, np.int64)
        mine = self.run.share.merged(nothing, everything, rng.stream(self.run.seed, "share", self.client))
        return shared["x"][mine], shared["y"][mine]

    def train(self, content: RecordDict, given: Arrays | None) -> tuple[Tree, dict[str, int | float]]:
        """One round on its own data and what it was given: weights and statistics, and what is said of them."""
        about: Any = wire.config_of(content)
        k, t = self.client, about["server-round"]
        if about.get("client", k) != k:  # a foreign strategy does not know who is who
            raise FedskewError(f"asked as client {about['client']}, but partition-id is {k}; start the run anew")
        x, y = self.own()
        if given is not None:
            x, y = np.concatenate([x, given[0]]), np.concatenate([y, given[1]])
        lab = self._laboratory(x, y)
        w, stats = lab.initial
        network = wire.unpack(content.get(wire.ARRAYS), w | stats)
        cohort = lab.cohort(t, np.array([k]))
        cohort = replace(cohort, population=tuple(about.get("population", cohort.population)))
        method = self.run.algorithm
        assert isinstance(method, Method)
        drift, contrast = wire.unpack_terms(content, w)
        task = Task(
            {name: network[name] for name in w},
            {name: network[name] for name in stats},
            cohort,
            Terms(drift, method.logits(cohort), contrast),
        )
        (done,) = many_of(lab.problem, self.engine)([task])
        told = {"num-examples": len(y), "loss": float(done.loss[0]), "server-round": t, "partition-id": k}
        return tree.one(done.w | done.stats, 0), told

    def _laboratory(self, x: NDArray[Any], y: NDArray[np.int64]) -> Laboratory:
        """All that is here is this client's own: nothing is held out, dealt or shared."""
        card, nothing = self.card, {"share": None, "warm_up": None, "start": "", "divergence": False}
        data = Dataset(card.name, x, y, x[:0], y[:0], card.classes, transform=card.transform)
        run = self.run.model_copy(update=nothing)
        device = str(self.config.get("device", "auto"))
        return Laboratory.of(run, data, device, self.engine, "tf32", holding=Holding.alone(self.client, len(y)))
