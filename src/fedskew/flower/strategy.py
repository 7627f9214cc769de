"""Our server methods as a strategy for anybody's ServerApp and ClientApp."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedskew import rng
from fedskew.algorithms import AnyAlgorithm, State, parse_algorithm
from fedskew.algorithms.fedavg import FedAvg
from fedskew.algorithms.fedavgm import FedAvgM
from fedskew.algorithms.fedopt import Adaptive
from fedskew.engine.batches import Cohort
from fedskew.errors import FedskewError
from fedskew.flower import check, wire
from fedskew.flower.wire import Wrong
from fedskew.tree import Tree

SERVER_ONLY = (FedAvg, FedAvgM, Adaptive)  # methods that ask nothing of clients but their weights
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")  # of batch-norm; they get no momentum

log = logging.getLogger("fedskew.flower")


class MethodStrategy(Strategy):
    """`MethodStrategy("fedavgm:0.9")`, `"median"`, `"fedadam,mean=clip:10"`: the server's half of a method.

    Replies are checked in full, sorted by their `partition-id` if they tell one, and averaged in their own dtypes;
    wrong ones are dropped and counted. Sampling is seeded. Clients reply as Flower's own do: `arrays`, and `metrics`
    with `num-examples`. Evaluation is central, by the `evaluate_fn` of `start`.
    """

    def __init__(
        self,
        method: str | AnyAlgorithm = "fedavg",
        *,
        fraction: float = 1.0,
        nodes: int = 2,
        patience: float = 600.0,
        seed: int = 0,
        is_statistic: Callable[[str], bool] = lambda name: name.endswith(STATISTICS),
    ) -> None:
        self.method = parse_algorithm(method) if isinstance(method, str) else method
        plain = self.method.model_copy(update={"mean": FedAvg().mean})
        if not isinstance(self.method, SERVER_ONLY) or any(
            getattr(plain, key) != getattr(FedAvg(), key) for key in ("loss", "smoothing", "sampling", "swa")
        ):
            raise FedskewError(
                f"{self.method} changes what clients do, which a strategy alone cannot; "
                "use fedskew.flower.client_app and server_app"
            )
        if not 0 < fraction <= 1 or nodes < 1:
            raise FedskewError(f"fraction = {fraction}, nodes = {nodes}: give 0 < fraction <= 1 and nodes >= 1")
        self.fraction, self.nodes, self.patience, self.seed = fraction, nodes, patience, seed
        self.is_statistic = is_statistic
        self.state: State | None = None
        self.asked: set[int] = set()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The round's weights for a seeded sample of the nodes."""
        if self.state is None:
            tensors = {name: torch.from_numpy(a.numpy().copy()) for name, a in arrays.items()}
            w = {name: x for name, x in tensors.items() if x.is_floating_point() and not self.is_statistic(name)}
            self.state = self.method.init(w, {name: x for name, x in tensors.items() if name not in w})
        nodes = self._there(grid)
        number = max(1, round(self.fraction * len(nodes)))
        chosen = rng.stream(self.seed, "sample", server_round).choice(len(nodes), number, replace=False)
        self.asked = {nodes[i] for i in chosen}
        content = RecordDict({wire.ARRAYS: arrays, wire.CONFIG: ConfigRecord({**config, "server-round": server_round})})
        return [Message(content, nodes[i], wire.TRAIN) for i in sorted(chosen)]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The method's step on the replies that can be used; without one the model stays as it is."""
        assert self.state is not None
        w, stats = self.state["w"], self.state["stats"]
        kept: dict[tuple[int, int], check.Update] = {}
        waited = set(self.asked)
        for reply in replies:
            node = reply.metadata.src_node_id
            try:
                if node not in waited:
                    raise Wrong("nobody waits for it: it came twice, or was not asked for")
                kept[self._place(reply), node] = self._checked(reply, server_round, w | stats)
                waited.discard(node)
            except Wrong as e:
                log.warning("round %d: the reply of node %d is dropped: %s", server_round, node, e)
        told = {"clients": len(kept), "lost": len(self.asked) - len(kept)}
        if not kept:
            return None, MetricRecord(dict(told))
        updates = [kept[key] for key in sorted(kept)]
        n = torch.tensor([u.n for u in updates])
        trained = check.trained(updates, w)
        self.state = self.method.step(self.state, _cohort(n), trained)
        loss = float((trained.loss * n).sum() / n.sum())
        return wire.pack(self.state["w"] | self.state["stats"]), MetricRecord({**told, "loss": loss})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nobody: one exchange a round is enough, and the server evaluates."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing was asked."""
        return None

    def summary(self) -> None:
        """One line."""
        log.info("%s, fraction %g of at least %d nodes, seed %d", self.method, self.fraction, self.nodes, self.seed)

    def _there(self, grid: Grid) -> list[int]:
        until = time.monotonic() + self.patience
        while len(found := sorted(grid.get_node_ids())) < self.nodes:
            if time.monotonic() > until:
                raise FedskewError(f"{len(found)} nodes are there after {self.patience:g} s, {self.nodes} are needed")
            time.sleep(1)
        return found

    def _checked(self, reply: Message, server_round: int, like: Tree) -> check.Update:
        content = wire.content_of(reply)
        told = wire.metrics_of(content).get("server-round", server_round)
        if told != server_round:
            raise Wrong(f"it is of round {told!r}, not {server_round}")
        update = check.update(content, like)
        if not update.finite:
            raise Wrong("its weights or its loss are NaN or infinite")
        return update

    @staticmethod
    def _place(reply: Message) -> int:
        """Where a reply comes in the average, the same in every run if clients tell their partition-id."""
        told = wire.metrics_of(wire.content_of(reply)).get("partition-id", 0)
        return told if isinstance(told, int) else 0


def _cohort(n: torch.Tensor) -> Cohort:
    """As much of a cohort as a server-only method looks at."""
    one = np.ones((len(n), 1, 1))
    return Cohort(
        clients=tuple(range(len(n))),
        n=n,
        index=torch.from_numpy(one.astype(np.int64)),
        mask=torch.from_numpy(one.astype(bool)),
        draws=None,
        keys=torch.zeros(len(n), dtype=torch.int64),
        lr=1.0,
        population=(len(n), int(n.sum())),
    )
