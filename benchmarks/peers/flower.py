"""Flower on its Ray simulation, a process a core: python -m benchmarks.peers.flower FOLDER"""

from __future__ import annotations

import sys
from typing import Any

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers.work import Weights, load, serve


def main(folder: str) -> None:
    """Answer on stdout."""
    import torch

    from benchmarks.peers import chain

    client, server = ClientApp(), ServerApp()

    def train(message: Any, context: Any) -> Any:
        """One local epoch; the data stay with the process, as a cache of Flower's own data sets would keep them."""
        from torch.nn.functional import cross_entropy

        work = load(folder)
        model = chain.network(work)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimiser = torch.optim.SGD(model.parameters(), lr=work.lr)
        k = int(context.node_config["partition-id"])
        for x, y in chain.batches(work, k):
            optimiser.zero_grad()
            cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        counted = MetricRecord({"num-examples": len(work.y[k])})
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": counted})
        return Message(content=content, reply_to=message)

    def rounds(grid: Any, context: Any) -> None:
        strategy = FedAvg(fraction_evaluate=0.0)
        start = chain.tensors(load(folder).w)

        def a_round() -> Weights:
            result = strategy.start(grid=grid, initial_arrays=ArrayRecord(start), num_rounds=1)
            return {name: leaf.numpy() for name, leaf in result.arrays.to_torch_state_dict().items()}

        serve(a_round)

    client.train()(train)
    server.main()(rounds)
    one_core: dict[str, dict[str, Any]] = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client, num_supernodes=len(load(folder).y), backend_config=one_core)


if __name__ == "__main__":
    main(sys.argv[1])
