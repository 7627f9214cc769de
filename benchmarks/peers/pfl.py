"""pfl, alone or under torchrun: python -m benchmarks.peers.pfl FOLDER"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.peers import chain
from benchmarks.peers.work import Weights, load, serve


class Network(nn.Module):
    """The chain with the two functions that pfl asks for."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """What a client minimises."""
        self.train()
        return cross_entropy(self.layers(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        """Nothing is evaluated here."""
        return {}


def asked() -> Iterator[str]:
    """The lines on stdin; with several processes, the first one's for all."""
    if "RANK" not in os.environ:
        yield from sys.stdin
        return
    while True:
        line = [sys.stdin.readline() if os.environ["RANK"] == "0" else ""]
        torch.distributed.broadcast_object_list(line)
        if not line[0]:
            return
        yield line[0]


def main(folder: str) -> None:
    """Answer on stdout."""
    work = load(folder)
    network = Network(chain.network(work))
    start = chain.tensors(work.w)
    model = PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0))
    clients = range(len(work.y))
    sets = [PyTorchTensorDataset((torch.from_numpy(work.x[k]), torch.from_numpy(work.y[k]))) for k in clients]
    population = FederatedDataset(sets.__getitem__, get_user_sampler("minimize_reuse", list(clients)))
    backend = SimulatedBackend(population, None, postprocessors=[WeightByDatapoints()])
    algorithm = FederatedAveraging()
    params = NNAlgorithmParams(
        central_num_iterations=10**9, evaluation_frequency=10**9, train_cohort_size=len(clients), val_cohort_size=None
    )
    local = NNTrainHyperParams(local_num_epochs=1, local_learning_rate=work.lr, local_batch_size=work.batch)

    def a_round() -> Weights:
        network.layers.load_state_dict(start)
        # iteration 1 and not 0, which pfl would also evaluate
        (context,), _, _ = algorithm.get_next_central_contexts(model, 1, params, local)
        statistics, metrics = backend.gather_results(model, algorithm, central_context=context)
        algorithm.process_aggregated_statistics(context, metrics, model, statistics)
        return chain.arrays(network.layers)

    serve(a_round, asked(), answers=os.environ.get("RANK", "0") == "0")


if __name__ == "__main__":
    main(sys.argv[1])
