"""Run: the frozen spec of one training run. The same spec gives the same rows, bit for bit, on one machine."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_serializer, model_validator

from fedskew.algorithms import Algorithm, FedAvg, parse_algorithm
from fedskew.data.dataset import Transform
from fedskew.data.partition import Iid, Partition, parse_partition
from fedskew.errors import FedskewError, from_validation
from fedskew.prepare import Share, WarmUp, held_out, parse_share, parse_warm_up, remedy
from fedskew.shown import Shown


class Run(Shown, BaseModel):
    """Everything that decides a run's numbers; what does not (device, store, progress) is an argument elsewhere.

    `partition` and `algorithm` take their short strings, and `clients` is short for the partition's own:
    `Run(partition="dirichlet:0.1", clients=100, algorithm="fedavgm:0.9")`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    name: str = Field("", max_length=200)
    data: str = "digits"  # a name of `fedskew data list` or the path of an .npz file
    examples: int | None = Field(None, ge=1)  # train on a random part of the training set; None: all of it
    validation: float = Field(0.0, ge=0, lt=1)  # split off this part of the training set and score on it, not on test
    holdout: float | None = Field(None, ge=0, lt=1)  # kept from the clients; None: 0.2 if data is shared, else nothing
    partition: Partition = Iid()
    share: Share | None = None  # "beta=0.1,alpha=0.5"
    warm_up: WarmUp | None = None  # 0.6, "rounds=5"
    start: str = ""  # the weights to begin with: a .safetensors file or run:ID
    model: str | Callable[..., Any] = "auto"  # a name, package.module:factory, or the factory itself
    transform: Transform | Literal["auto"] = "auto"  # auto: the data set's own
    algorithm: Algorithm = FedAvg()
    rounds: int = Field(50, ge=1)
    epochs: int = Field(1, ge=1)  # E
    batch: int | None = Field(10, ge=1)  # B; None, or "full": a client's whole data
    drop_last: bool = False  # see engine/batches.py for why the short batch is kept
    lr: float = Field(0.1, gt=0)
    lr_decay: float = Field(1.0, gt=0, le=1)  # lr of round t is lr * lr_decay ** (t - 1), and with ...
    lr_schedule: Literal["constant", "cosine"] = "constant"  # ... cosine times half a cosine, from 1 to 0
    momentum: float = Field(0.0, ge=0, lt=1)  # of the local SGD, started anew each round
    weight_decay: float = Field(0.0, ge=0)
    participation: float = Field(1.0, gt=0, le=1)  # C, the fraction of clients in a round, or ...
    cohort: int | None = Field(None, ge=1)  # ... their number
    eval_every: int = Field(1, ge=1)  # rounds between evaluations; the last round is always evaluated
    divergence: bool = False  # train a matched SGD beside it and report the weight divergence
    seed: int = Field(0, ge=0)

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as e:
            raise from_validation("run", e) from None

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        fields = dict(fields)
        clients = fields.pop("clients", None)
        partition = fields.get("partition", "iid" if clients is not None else None)
        if isinstance(partition, str):
            fields["partition"] = parse_partition(partition, clients=clients)
        elif clients is not None:
            raise FedskewError(f"clients = {clients!r} goes with a partition's short string; set it in the spec itself")
        if fields.get("batch") == "full":
            fields["batch"] = None
        if isinstance(fields.get("algorithm"), str):
            fields["algorithm"] = parse_algorithm(fields["algorithm"])
        for key, parsed in (("share", parse_share), ("warm_up", parse_warm_up)):
            if key in fields:
                fields[key] = parsed(fields[key])
        return fields

    @model_validator(mode="after")
    def _one_way_to_sample(self) -> Run:
        if self.cohort is not None and self.participation != 1.0:
            raise FedskewError(
                f"run: participation = {self.participation} and cohort = {self.cohort} both say how many clients "
                "take part; give one of them"
            )
        return self

    @model_validator(mode="after")
    def _something_to_warm_up_on(self) -> Run:
        if self.warm_up and self.warm_up.fraction is None and self.share is None:
            raise FedskewError(
                'run: warm-up trains on shared data: add share = "beta=0.1", or fraction=0.1 to warm-up for a part of '
                "the whole training set"
            )
        return self

    @property
    def held_out(self) -> float:
        """The part of the training set that no client gets."""
        return held_out(self.holdout, self.share)

    @property
    def remedy(self) -> str:
        """What is done before the first round, in short: "share beta=0.1,alpha=0.5, warm-up 0.6"."""
        return remedy(self.share, self.warm_up, self.start)

    @field_serializer("model")
    def _written_model(self, model: str | Callable[..., Any]) -> str:
        if isinstance(model, str):
            return model
        name = f"{model.__module__}:{getattr(model, '__qualname__', '')}"
        if "<" in name or name.endswith(":") or name.startswith("__main__"):
            raise FedskewError(f"model {name} cannot be imported by its name: move the factory into a module")
        return name

    @classmethod
    def from_toml(cls, text: str) -> Run:
        """The run that a TOML document describes, with the same keys and short strings."""
        try:
            return cls(**tomllib.loads(text))
        except tomllib.TOMLDecodeError as e:
            raise FedskewError(f"the config is not valid TOML: {e}") from e

    def spec(self) -> dict[str, Any]:
        """The run as a JSON document; `Run(**spec)` is the same run."""
        return self.model_dump(mode="json")

    def lr_of(self, round_: int) -> float:
        """The learning rate of a round (counted from 1): it changes with the round, not with the step.

        Cosine: Loshchilov and Hutter 2017, equation 5, without restarts.
        """
        lr = self.lr * self.lr_decay ** (round_ - 1)
        if self.lr_schedule == "cosine":
            lr *= (1 + math.cos(math.pi * (round_ - 1) / self.rounds)) / 2
        return lr
