"""How a labelled data set becomes clients: a partition is a spec, called with labels and a generator."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from fedskew import spec
from fedskew.data.partition.classes import Classes, Shards
from fedskew.data.partition.dirichlet import Dirichlet, DirichletByClass
from fedskew.data.partition.emd import Emd
from fedskew.data.partition.even import Iid, Quantity
from fedskew.data.partition.natural import File, Groups
from fedskew.data.partition.nodes import Nodes
from fedskew.data.partition.parts import Parts

AnyPartition = Iid | Classes | Shards | Dirichlet | DirichletByClass | Quantity | Groups | Emd | File | Nodes
Partition = Annotated[AnyPartition, Field(discriminator="kind")]

KINDS: tuple[type[AnyPartition], ...] = (
    Iid,
    Classes,
    Shards,
    Dirichlet,
    DirichletByClass,
    Quantity,
    Groups,
    Emd,
    File,
    Nodes,
)


def parse_partition(text: str, clients: int | None = None) -> AnyPartition:
    """The partition that a short form such as `dirichlet:0.1` describes."""
    given: dict[str, Any] = {} if clients is None else {"clients": clients}
    kind, colon, path = text.strip().partition(":")
    if kind == "file" and colon:  # a path may hold the commas and equals signs of the short form
        return File(path=path, **given)
    return spec.parse("partition", text, KINDS, **given)


__all__ = [
    "KINDS",
    "AnyPartition",
    "Classes",
    "Dirichlet",
    "DirichletByClass",
    "Emd",
    "File",
    "Groups",
    "Iid",
    "Nodes",
    "Partition",
    "Parts",
    "Quantity",
    "Shards",
    "parse_partition",
]
