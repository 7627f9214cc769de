"""Our partitions behind the interface of Flower Datasets' partitioners."""

from __future__ import annotations

import sys
from functools import cached_property
from typing import Any

import numpy as np

from fedskew import rng
from fedskew.data.partition import AnyPartition, Parts, parse_partition
from fedskew.errors import FedskewError


class SkewPartitioner:
    """`FederatedDataset(dataset="mnist", partitioners={"train": SkewPartitioner("classes:1", clients=10)})`.

    What it needs of a dataset: a column by name, `dataset["label"]`, and `dataset.select(indices)`. It is no subclass
    of Flower Datasets' Partitioner, so that it works without that package, but counts as one where that is loaded.
    """

    def __init__(
        self,
        partition: str | AnyPartition,
        *,
        clients: int | None = None,
        label: str = "label",
        group: str | None = None,
        seed: int = 0,
    ) -> None:
        self.partition = parse_partition(partition, clients) if isinstance(partition, str) else partition
        self.label, self.group, self.seed = label, group, seed
        self._dataset: Any = None
        theirs = sys.modules.get("flwr_datasets.partitioner")
        if theirs is not None:
            theirs.Partitioner.register(type(self))  # an abstract base class: FederatedDataset asks for its instances

    @property
    def dataset(self) -> Any:
        """What is dealt out."""
        if self._dataset is None:
            raise AttributeError("a partitioner has no dataset before one is assigned; use it in a FederatedDataset")
        return self._dataset

    @dataset.setter
    def dataset(self, value: Any) -> None:
        if self._dataset is not None:
            raise FedskewError("a partitioner is for one dataset; make another one")
        self._dataset = value

    def is_dataset_assigned(self) -> bool:
        """Whether there is something to deal out."""
        return self._dataset is not None

    @cached_property
    def parts(self) -> Parts:
        """One index array a client, the same for the same seed."""
        groups = None if self.group is None else np.asarray(self.dataset[self.group])
        return self.partition(np.asarray(self.dataset[self.label]), rng.stream(self.seed, "partition"), groups)

    @property
    def num_partitions(self) -> int:
        """How many clients there are."""
        return len(self.parts)

    def load_partition(self, partition_id: int) -> Any:
        """One client's examples."""
        if not 0 <= partition_id < self.num_partitions:
            raise FedskewError(f"partition {partition_id} is not in 0..{self.num_partitions - 1}")
        return self.dataset.select(self.parts[partition_id])
