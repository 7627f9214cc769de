"""Our partitions behind Flower Datasets' interface; that package is not needed for it."""

import sys
from abc import ABC, abstractmethod
from types import ModuleType

import numpy as np
import pytest

from fedskew import rng
from fedskew.data.partition import parse_partition
from fedskew.errors import FedskewError
from fedskew.flower import SkewPartitioner


class Table:
    """As much of a Hugging Face dataset as is asked of it."""

    def __init__(self, columns):
        self.columns = columns

    def __getitem__(self, name):
        return self.columns[name]

    def select(self, index):
        return Table({name: [column[i] for i in index] for name, column in self.columns.items()})


TABLE = Table(
    {"image": list(range(100)), "label": [i % 5 for i in range(100)], "speaker": [i // 10 for i in range(100)]}
)


def test_partitions_are_those_of_the_spec():
    ours = SkewPartitioner("classes:2", clients=5, seed=3)
    assert not ours.is_dataset_assigned()
    ours.dataset = TABLE
    assert ours.is_dataset_assigned()
    assert ours.num_partitions == 5
    expected = parse_partition("classes:2", clients=5)(np.array(TABLE["label"]), rng.stream(3, "partition"))
    loaded = [ours.load_partition(k)["image"] for k in range(5)]
    assert loaded == [part.tolist() for part in expected]
    assert sorted(i for part in loaded for i in part) == list(range(100))


def test_other_columns_and_natural_groups():
    ours = SkewPartitioner("groups", label="label", group="speaker")
    ours.dataset = TABLE
    assert ours.num_partitions == 10
    assert set(ours.load_partition(4)["speaker"]) == {4}


def test_it_is_for_one_dataset_and_needs_it():
    ours = SkewPartitioner("iid", clients=2)
    with pytest.raises(AttributeError, match="no dataset"):
        ours.num_partitions  # noqa: B018
    ours.dataset = TABLE
    with pytest.raises(FedskewError, match="one dataset"):
        ours.dataset = TABLE
    with pytest.raises(FedskewError, match=r"partition 2 is not in 0\.\.1"):
        ours.load_partition(2)


def test_where_flower_datasets_is_loaded_it_counts_as_one_of_its_own(monkeypatch):
    """FederatedDataset asks isinstance(partitioner, Partitioner), an abstract base class."""

    class Partitioner(ABC):
        @abstractmethod
        def load_partition(self, partition_id): ...

    theirs = ModuleType("flwr_datasets.partitioner")
    theirs.Partitioner = Partitioner
    monkeypatch.setitem(sys.modules, "flwr_datasets.partitioner", theirs)
    assert isinstance(SkewPartitioner("iid", clients=2), Partitioner)
