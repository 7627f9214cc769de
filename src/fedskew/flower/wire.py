"""What travels: trees of tensors as Flower's records, and back; no array is believed before it is checked."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray
from torch import Tensor

from fedskew import tree
from fedskew.data.dataset import Dataset, Transform
from fedskew.engine.terms import Contrast, Drift
from fedskew.tree import Tree

# Records of a message; the first three are the names that Flower's own strategies use.
ARRAYS, METRICS, CONFIG = "arrays", "metrics", "config"
SHIFT, PREVIOUS = "shift", "previous"  # engine/terms.py: what is added to a gradient; a client's last weights
# Kinds of messages.
HELLO, SHARE, TRAIN = "query.hello", "query.share", "train"
REFUSED, LACKS_SHARED = "refused", "lacks-shared"  # in a reply's config: why the node did not do it


Config = dict[str, int | float | list[int]]  # what a message's config says beside `Federation.about`


class Wrong(Exception):
    """Why a message cannot be used; the run goes on without it."""


@dataclass(frozen=True)
class Card:
    """What a node must know of the server's data set to build the same network and to check its own data."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    classes: tuple[str, ...]
    transform: Transform

    @classmethod
    def of(cls, data: Dataset, transform: Transform) -> Card:
        """The card of a data set whose batches are transformed so."""
        return cls(data.name, data.shape, str(data.x.dtype), data.classes, transform)

    def written(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Card:
        """The card that `written` wrote."""
        fields = json.loads(text)
        return cls(**fields | {"shape": tuple(fields["shape"]), "classes": tuple(fields["classes"])})


def pack(leaves: Tree) -> ArrayRecord:
    """A tree as named arrays."""
    return pack_arrays({name: leaf.detach().cpu().numpy() for name, leaf in leaves.items()})


def pack_arrays(arrays: dict[str, NDArray[Any]]) -> ArrayRecord:
    """The same for numpy's arrays."""
    return ArrayRecord({name: Array(a) for name, a in arrays.items()})


def unpack(record: object, like: Tree) -> Tree:
    """The tree of a record, which must have exactly these names, shapes and kinds of numbers."""
    expected = {name: (tuple(leaf.shape), _dtype(leaf)) for name, leaf in like.items()}
    arrays = unpack_arrays(record, expected)
    return {name: torch.from_numpy(a).to(like[name].device) for name, a in arrays.items()}


def unpack_arrays(
    record: object, expected: Mapping[str, tuple[tuple[int | None, ...], np.dtype[Any]]]
) -> dict[str, NDArray[Any]]:
    """The arrays of a record, writable; a None in a shape stands for any length."""
    if not isinstance(record, ArrayRecord):
        raise Wrong("it has no arrays")
    if missing := [name for name in expected if name not in record]:
        raise Wrong(f"{missing[0]} is missing")
    if foreign := [name for name in record if name not in expected]:
        raise Wrong(f"{foreign[0]!r} is not one of the network's names")
    return {name: _array(name, record[name], *expected[name]) for name in expected}


def _array(name: str, array: Array, shape: tuple[int | None, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Read by hand: np.load would make room for whatever shape the bytes claim."""
    try:
        file = io.BytesIO(array.data)
        if np.lib.format.read_magic(file) != (1, 0) or array.stype != "numpy.ndarray":
            raise Wrong(f"{name} is not a plain array")
        found, fortran, kind = np.lib.format.read_array_header_1_0(file)
    except ValueError as e:
        raise Wrong(f"{name} is not a plain array ({e})") from None
    if len(found) != len(shape) or any(w is not None and w != f for w, f in zip(shape, found, strict=True)):
        raise Wrong(f"{name} has shape {found}, not {shape}")
    if kind != dtype:
        raise Wrong(f"{name} holds {kind}, not {dtype}")
    data = array.data[file.tell() :]
    if len(data) != int(np.prod(found, dtype=object)) * dtype.itemsize:
        raise Wrong(f"{name} has {len(data)} bytes, which do not fill shape {found}")
    return np.frombuffer(data, dtype).reshape(found, order="F" if fortran else "C").copy()


def finite(leaves: Tree) -> bool:
    """Whether every number of a tree is one."""
    return all(bool(leaf.isfinite().all()) for leaf in leaves.values() if leaf.is_floating_point())


def pack_terms(drift: Drift | None, contrast: Contrast | None, k: int) -> tuple[RecordDict, dict[str, float]]:
    """The k-th client's terms as records, and their numbers for the config."""
    records, numbers = RecordDict(), dict[str, float]()
    if drift is not None:
        numbers["pull"] = float(drift.pull[k])
        if drift.shift:
            records[SHIFT] = pack(tree.one(drift.shift, k))
    if contrast is not None:
        records[PREVIOUS] = pack(tree.one(contrast.previous, k))
        numbers |= {"mu": float(contrast.mu[k]), "temperature": float(contrast.temperature[k])}
    return records, numbers


def unpack_terms(content: RecordDict, w: Tree) -> tuple[Drift | None, Contrast | None]:
    """The terms of one client, with a client axis of one."""
    config, drift, contrast = config_of(content), None, None
    if "pull" in config:
        shift = _stacked(content[SHIFT], w) if SHIFT in content else {}
        drift = Drift(torch.tensor([config["pull"]], dtype=torch.float64), shift)
    if PREVIOUS in content:
        like = next(iter(w.values()))
        mu, temperature = (like.new_tensor([config[key]]) for key in ("mu", "temperature"))
        contrast = Contrast(_stacked(content[PREVIOUS], w), mu, temperature)
    return drift, contrast


def _stacked(record: object, w: Tree) -> Tree:
    return tree.apply(lambda x: x.unsqueeze(0), unpack(record, w))


def config_of(content: RecordDict) -> ConfigRecord:
    """The config of a message; an empty one if there is none."""
    found = content.get(CONFIG)
    return found if isinstance(found, ConfigRecord) else ConfigRecord()


def metrics_of(content: RecordDict) -> MetricRecord:
    """The metrics of a reply."""
    found = content.get(METRICS)
    if not isinstance(found, MetricRecord):
        raise Wrong("it has no metrics")
    return found


def content_of(message: Message) -> RecordDict:
    """What a reply says, unless it says that something went wrong."""
    if message.has_error():
        raise Wrong((message.error.reason or f"Flower's error {message.error.code}").strip())
    if REFUSED in (config := config_of(message.content)):
        raise Wrong(str(config[REFUSED]))
    return message.content


def nbytes(content: RecordDict) -> int:
    """Bytes of all arrays of a message."""
    return sum(len(a.data) for r in content.values() if isinstance(r, ArrayRecord) for a in r.values())


def _dtype(leaf: Tensor) -> np.dtype[Any]:
    return leaf.new_empty(0, device="cpu").numpy().dtype
