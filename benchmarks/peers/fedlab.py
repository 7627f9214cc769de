"""FedLab's serial simulation: python -m benchmarks.peers.fedlab FOLDER"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from benchmarks.peers import chain
from benchmarks.peers.work import Weights, Work, load, serve


class Clients:
    """What a trainer asks of a data set."""

    def __init__(self, work: Work) -> None:
        self.batches = [chain.batches(work, k) for k in range(len(work.y))]

    def get_dataloader(self, client: int, batch: int) -> Any:
        """Any iterable of batches will do."""
        return self.batches[client]


def without_torchvision() -> None:
    """FedLab has torchvision for its data sets only, and its usual wheel does not load beside a CPU build of torch."""
    try:
        import_module("torchvision")
    except (ImportError, RuntimeError):
        for name in ("torchvision", "torchvision.transforms"):
            sys.modules[name] = ModuleType(name)
        vars(sys.modules["torchvision"])["transforms"] = sys.modules["torchvision.transforms"]


def main(folder: str) -> None:
    """Answer on stdout."""
    without_torchvision()
    from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
    from fedlab.contrib.algorithm.basic_server import SyncServerHandler
    from fedlab.utils import Aggregators, SerializationTool

    work = load(folder)
    network, start = chain.network(work), chain.tensors(work.w)
    examples = torch.tensor([len(y) for y in work.y], dtype=torch.from_numpy(work.x).dtype)
    trainer = SGDSerialClientTrainer(network, len(work.y))
    trainer.setup_dataset(Clients(work))
    trainer.setup_optim(epochs=1, batch_size=work.batch, lr=work.lr)
    server = SyncServerHandler(network, global_round=10**9, sample_ratio=1.0)
    server.num_clients = len(work.y)

    def weighted(buffer: list[list[Tensor]]) -> None:
        average = Aggregators.fedavg_aggregate([weights for (weights,) in buffer], examples)
        SerializationTool.deserialize_model(server.model, average)

    server.global_update = weighted  # FedLab's own weighs every client the same

    def a_round() -> Weights:
        server.model.load_state_dict(start)
        trainer.local_process(server.downlink_package, server.sample_clients())
        for package in trainer.uplink_package:
            server.load(package)
        return chain.arrays(server.model)

    serve(a_round)


if __name__ == "__main__":
    main(sys.argv[1])
