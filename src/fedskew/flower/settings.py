"""How a federation is run: what decides time and place, not the numbers of a run in which nobody is lost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedskew.algorithms import AnyAlgorithm
from fedskew.algorithms.means import Krum
from fedskew.errors import FedskewError, from_validation


class Settings(BaseModel):
    """The keys of `[tool.flwr.app.config]`; `flwr run . -c 'deadline=60'` sets one for a run."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    deadline: float = Field(300.0, gt=0)  # seconds after which a round ends with those who have replied
    quorum: float = Field(0.5, gt=0, le=1)  # the part of a round's clients without which it does not end
    limit: float = Field(900.0, gt=0)  # seconds without a quorum after which the run is given up
    resume: str = ""  # the id of a stored run to go on with
    store: str = ""  # its folder; empty: FEDSKEW_STORE, else ./runs
    device: str = "auto"  # of the server; a node's own is in its node config
    engine: Literal["auto", "stacked", "threaded", "loop"] = "auto"  # of server and nodes

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as e:
            raise from_validation("federation", e) from None

    @model_validator(mode="after")
    def _limit_after_deadline(self) -> Settings:
        if self.limit < self.deadline:
            raise FedskewError(
                f"federation: limit = {self.limit:g} is shorter than deadline = {self.deadline:g}; raise it"
            )
        return self

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Settings:
        """From a Flower app's config; keys of other names are the app's own."""
        return cls(**{key: value for key, value in config.items() if key in cls.model_fields})

    def least(self, clients: int, method: AnyAlgorithm) -> int:
        """How many of a round's clients must reply: the quorum, and what the method's mean needs."""
        mean = getattr(method, "mean", None)
        needed = 2 * mean.f + 3 if isinstance(mean, Krum) else 1
        return max(needed, math.ceil(self.quorum * clients - 1e-9))
