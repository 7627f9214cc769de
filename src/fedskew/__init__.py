"""fedskew measures, explains and repairs non-IID federated learning.

`import fedskew` is cheap: a name is imported from its room when it is first used, so that looking at label counts does
not wait for torch.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedskew.data.dataset import Dataset
    from fedskew.data.datasets import from_arrays, load
    from fedskew.errors import FedskewError
    from fedskew.experiment import train, train_together
    from fedskew.rounds import Row
    from fedskew.run import Run
    from fedskew.store import Store

__version__ = "0.1.0"

# OpenMP's threads wait for each other by spinning, and when another process uses a core a step of a small network takes
# ten to fifty times longer; sleeping costs nothing that can be measured. It is read when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# MKL adds in an order that depends on where in memory a matrix begins, on some processors, so that a client's last bits
# would depend on who is stacked beside it; told so it does not, as fast. It is read at MKL's first product.
os.environ.setdefault("MKL_CBWR", "AUTO")

_ROOMS = {
    "Dataset": "fedskew.data.dataset",
    "FedskewError": "fedskew.errors",
    "Row": "fedskew.rounds",
    "Run": "fedskew.run",
    "Store": "fedskew.store",
    "from_arrays": "fedskew.data.datasets",
    "load": "fedskew.data.datasets",
    "train": "fedskew.experiment",
    "train_together": "fedskew.experiment",
}

__all__ = ["Dataset", "FedskewError", "Row", "Run", "Store", "from_arrays", "load", "train", "train_together"]


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module 'fedskew' has no attribute {name!r}")
    return getattr(import_module(_ROOMS[name]), name)
