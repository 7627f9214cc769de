"""Named random streams: every draw is a function of (seed, name, ids), so any round can be made again alone."""

from __future__ import annotations

import hashlib

import numpy as np


def _digest(seed: int, name: str, *ids: int) -> bytes:
    text = "/".join([str(seed), name, *map(str, ids)])
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def entropy(seed: int, name: str, *ids: int) -> int:
    """128 bits that depend on the seed, the purpose and the place (round, client, ...)."""
    return int.from_bytes(_digest(seed, name, *ids), "little")


def stream(seed: int, name: str, *ids: int) -> np.random.Generator:
    """An independent generator for one purpose, e.g. `stream(seed, "sample", round)`."""
    words = np.frombuffer(_digest(seed, name, *ids), "<u4")  # numpy cuts an int into these itself, and takes its time
    return np.random.Generator(np.random.PCG64(words))


def torch_seed(seed: int, name: str, *ids: int) -> int:
    """The same, as a seed for torch's generators (63 bits)."""
    return entropy(seed, name, *ids) >> 65
