"""The methods: frozen specs with two pure functions, `init(w, stats)` and `step(state, cohort, trained)`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fedskew.algorithms.fedavg import FedAvg
from fedskew.algorithms.fedavgm import FedAvgM
from fedskew.algorithms.sgd import SGD
from fedskew.algorithms.state import State
from fedskew.spec import parse

AnyAlgorithm = FedAvg | FedAvgM | SGD
Algorithm = Annotated[AnyAlgorithm, Field(discriminator="kind")]
KINDS: tuple[type[AnyAlgorithm], ...] = (FedAvg, FedAvgM, SGD)


def parse_algorithm(text: str) -> AnyAlgorithm:
    """The method that a short string describes: `fedavg`, `fedavgm:0.9`, `fedavgm:0.9,plain`, `sgd`."""
    return parse("algorithm", text, KINDS)


__all__ = ["KINDS", "SGD", "Algorithm", "AnyAlgorithm", "FedAvg", "FedAvgM", "State", "parse_algorithm"]
