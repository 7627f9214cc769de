"""What a federation's server knows: its own data set, and of its clients only what they told."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedskew import measure, prepare, rng
from fedskew.data.dataset import Dataset
from fedskew.data.partition import Nodes
from fedskew.engine import batches
from fedskew.engine.batches import Cohort
from fedskew.errors import FedskewError
from fedskew.flower.federation import Federation
from fedskew.flower.settings import Settings
from fedskew.laboratory import Laboratory
from fedskew.run import Run
from fedskew.sides import Holding

Counts = NDArray[np.int64]  # (C,)


@dataclass(frozen=True)
class Remote(Laboratory):
    """Stands where a laboratory stands in a simulation: cohorts without data, EMDs from what nodes report."""

    federation: Federation

    @classmethod
    def among(cls, federation: Federation, run: Run, data: Dataset, settings: Settings) -> Remote:
        """The server's side of a run, once its clients have said how much they hold."""
        if isinstance(run.partition, Nodes):
            examples = sum(member.n for member in federation.members.values())
            holding = Holding.elsewhere(run, data, run.partition.clients, examples)
        else:
            holding = Holding.of(run, data)
        own = Laboratory.of(run, data, settings.device, settings.engine, "tf32", holding=holding)
        return cls(**vars(own), federation=federation)

    @property
    def received(self) -> int:
        """Examples of G that every client gets."""
        return self.run.share.received(len(self.shared)) if self.run.share and self.shared is not None else 0

    def size(self, k: int) -> int:
        """Examples that client k trains on; of one that has not been there yet, as many as others do on average."""
        members = self.federation.members
        own = members[k].n if k in members else round(sum(m.n for m in members.values()) / len(members))
        return own + self.received

    def cohort(self, t: int, chosen: NDArray[np.int64]) -> Cohort:
        """The chosen clients in round t, as far as they are known."""
        return self.cohort_of(t, {k: self.size(k) for k in chosen.tolist()})

    def cohort_of(self, t: int, sizes: dict[int, int]) -> Cohort:
        """How many examples and steps clients that hold so many go through in round t; which ones, only they know."""
        plan = replace(self.plan, transform="none", balance=None, counted=None)
        parts = [np.arange(n) for n in sizes.values()]
        population = self.federation.clients, sum(map(self.size, self.federation.members))
        return batches.cohort(plan, list(sizes), parts, self.run.lr_of(t), self.run.seed, t, self.device, population)

    def emd(self, clients: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of those of the clients that report label counts, shared data included; NaN if none does."""
        held = [c + self._drawn(k) for k in clients.tolist() if (c := self._counts(k)) is not None]
        return measure.emd(np.stack(held), self._everybody()) if held else np.full(1, np.nan)

    def mean_emd(self) -> float:
        """Over the clients that report label counts."""
        return float(self.emd(np.arange(self.federation.clients)).mean())

    def sharing(self) -> dict[str, Any]:
        """What was shared and what it did to the skew, as far as nodes tell; G goes whole to every node."""
        if self.shared is None:
            return {}
        report = {
            "shared": len(self.shared),
            "received": self.received,
            "bytes": len(self.shared) * self.example_bytes * len(self.federation.members),
            "emd": self.mean_emd(),
        }
        private = self._reported()
        if not private:
            return report | {"emd_before": math.nan, "emd_predicted": math.nan}
        counts, everybody = np.stack(private), self._everybody()
        held = np.bincount(self.labels[self.shared], minlength=self.classes)
        return report | {
            "emd_before": float(measure.emd(counts, everybody).mean()),
            "emd_predicted": float(prepare.mixed_emd(counts, held, self.received, everybody).mean()),
        }

    def _counts(self, k: int) -> Counts | None:
        """The label counts that client k reported; noise can make one negative, which then counts as none."""
        member = self.federation.members.get(k)
        return None if member is None or member.counts is None else member.counts.clip(0)

    def _reported(self) -> list[Counts]:
        return [c for k in sorted(self.federation.members) if (c := self._counts(k)) is not None]

    def _everybody(self) -> Counts:
        everybody: Counts = np.stack(self._reported()).sum(axis=0)
        return everybody

    def _drawn(self, k: int) -> Counts:
        """Labels of client k's own draw of G, which the server can repeat."""
        if self.shared is None or self.run.share is None:
            return np.zeros(self.classes, np.int64)
        drawn = self.run.share.merged(np.empty(0, np.int64), self.shared, rng.stream(self.run.seed, "share", k))
        return np.bincount(self.labels[drawn], minlength=self.classes)


def federable(run: Run) -> None:
    """Refuse what needs all data in one place."""
    if run.algorithm.kind == "sgd":
        raise FedskewError("algorithm sgd has all data on one machine: there is nothing to federate; train it here")
    if run.divergence and isinstance(run.partition, Nodes):
        raise FedskewError(
            "divergence compares with SGD on everybody's data, which partition nodes leaves where it is; drop it"
        )
