"""Clients that are machines of a federation, each with data of its own."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fedskew.data.partition.fields import Clients
from fedskew.data.partition.parts import Parts
from fedskew.errors import FedskewError
from fedskew.spec import Spec


class Nodes(Spec):
    """One client a machine: what it holds never leaves it, so there is nothing here to deal out."""

    kind: Literal["nodes"] = "nodes"
    clients: Clients = 10

    def __call__(self, labels: ArrayLike, rng: np.random.Generator, groups: ArrayLike | None = None) -> Parts:
        """Refused: only a federation can train such a run."""
        raise FedskewError(
            "partition nodes: the clients' data lie on machines of their own; run it in a federation "
            "(fedskew deploy init), or choose another partition"
        )
