"""Clients that the data itself names: groups such as speakers, or a file of users."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field

from fedskew.data.partition.fields import Clients, as_labels
from fedskew.data.partition.parts import Ints, Parts
from fedskew.data.partition.pool import near_equal
from fedskew.errors import FedskewError
from fedskew.spec import Spec


class Groups(Spec):
    """One client a natural group (speaker, user); with `clients`, whole groups are dealt at random."""

    kind: Literal["groups"] = "groups"
    clients: Clients | None = None

    def __call__(self, labels: ArrayLike, rng: np.random.Generator, groups: ArrayLike | None = None) -> Parts:
        """One index array a client."""
        n = len(as_labels(labels))
        if groups is None:
            raise FedskewError("groups: the data set names no groups; use another partition or data with groups")
        names, client = np.unique(np.asarray(groups), return_inverse=True)
        if len(client) != n:
            raise FedskewError(f"groups: {len(client)} groups for {n} labels; give one group a label")
        if self.clients is None:
            return _by_client(client, len(names), np.arange(n))
        if self.clients > len(names):
            raise FedskewError(
                f"groups: clients = {self.clients}: the data has {len(names)} groups and none is ever split; "
                f"use at most {len(names)}"
            )
        hand = np.repeat(np.arange(self.clients), near_equal(len(names), self.clients))
        return _by_client(rng.permutation(hand)[client], self.clients, np.arange(n))


class File(Spec):
    """The clients of a CSV of user, index[, class], the format of the released splits of Hsu et al. 2019."""

    kind: Literal["file"] = "file"
    positional: ClassVar[str | None] = "path"
    clients: Clients | None = None
    path: str = Field(min_length=1)

    def __call__(self, labels: ArrayLike, rng: np.random.Generator, groups: ArrayLike | None = None) -> Parts:
        """One index array a client, in the order of the users."""
        from fedskew.data import datasets

        y = as_labels(labels)
        users, index, classes = datasets.read_split(self.path)
        outside = np.flatnonzero((index < 0) | (index >= len(y)))
        if outside.size:
            raise FedskewError(
                f"{self.path}: index {index[outside[0]]} is not in 0..{len(y) - 1}; use the split of this data set"
            )
        twice = np.flatnonzero(np.bincount(index) > 1)
        if twice.size:
            raise FedskewError(f"{self.path}: index {twice[0]} is there twice; give each example to one user")
        if classes is not None and (wrong := np.flatnonzero(classes != y[index])).size:
            i = wrong[0]
            raise FedskewError(
                f"{self.path}: example {index[i]} has class {classes[i]} there and class {y[index[i]]} "
                "in the data; use the split of this data set"
            )
        names, client = np.unique(users, return_inverse=True)
        if self.clients not in (None, len(names)):
            raise FedskewError(
                f"{self.path}: clients = {self.clients}: the file has {len(names)} users; leave clients out"
            )
        if np.char.isdecimal(names).all():  # 2 comes before 10
            client = np.argsort(np.lexsort((names, np.char.str_len(names))))[client]
        return _by_client(client, len(names), index)


def _by_client(client: Ints, clients: int, index: Ints) -> Parts:
    order = np.argsort(client, kind="stable")
    return Parts(index[order], np.bincount(client, minlength=clients))
