"""The methods: frozen specs with pure functions, `init`, `terms` (what clients add to SGD) and `step` (the server)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fedskew.algorithms.fedavg import FedAvg
from fedskew.algorithms.fedavgm import FedAvgM
from fedskew.algorithms.feddyn import FedDyn
from fedskew.algorithms.fednova import FedNova
from fedskew.algorithms.fedopt import FedAdagrad, FedAdam, FedYogi
from fedskew.algorithms.fedprox import FedProx
from fedskew.algorithms.moon import Moon
from fedskew.algorithms.scaffold import Scaffold
from fedskew.algorithms.sgd import SGD
from fedskew.algorithms.state import State
from fedskew.spec import parse

AnyAlgorithm = FedAvg | FedAvgM | FedProx | Scaffold | FedNova | FedDyn | FedAdam | FedYogi | FedAdagrad | Moon | SGD
Algorithm = Annotated[AnyAlgorithm, Field(discriminator="kind")]
KINDS: tuple[type[AnyAlgorithm], ...] = (
    *(FedAvg, FedAvgM, FedProx, Scaffold, FedNova, FedDyn, FedAdam, FedYogi, FedAdagrad, Moon, SGD),
)
# One word for FedAvg with one option changed.
OPTIONS = {
    **{word: f"mean={word}{{0}}" for word in ("median", "trimmed", "krum", "clip")},
    **{word: f"loss={word}{{0}}" for word in ("restricted", "adjusted")},
    "fedrs": "loss=restricted{0}",
    "balanced": "sampling=balanced{0}",
    "smoothing": "smoothing={value}",
    "swa": "swa={value}",
}


def parse_algorithm(text: str) -> AnyAlgorithm:
    """The method that a short string describes: `fedavg`, `fedavgm:0.9,plain`, `median`, `fedprox:0.1,mean=krum:2`."""
    head, comma, rest = text.strip().partition(",")
    word, colon, value = head.partition(":")
    if word in OPTIONS:
        text = "fedavg," + OPTIONS[word].format(colon + value, value=value or "0.1") + comma + rest
    return parse("algorithm", text, KINDS)


__all__ = ["KINDS", "OPTIONS", "SGD", "Algorithm", "AnyAlgorithm", "FedAvg", "FedAvgM", "State", "parse_algorithm"]
