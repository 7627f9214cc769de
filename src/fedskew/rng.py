"""Named random streams: every draw is a function of (seed, name, ids), so any round can be made again alone."""

from __future__ import annotations

import hashlib

import numpy as np


def entropy(seed: int, name: str, *ids: int) -> int:
    """128 bits that depend on the seed, the purpose and the place (round, client, ...)."""
    text = "/".join([str(seed), name, *map(str, ids)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def stream(seed: int, name: str, *ids: int) -> np.random.Generator:
    """An independent generator for one purpose, e.g. `stream(seed, "sample", round)`."""
    return np.random.Generator(np.random.PCG64(entropy(seed, name, *ids)))


def torch_seed(seed: int, name: str, *ids: int) -> int:
    """The same, as a seed for torch's generators (63 bits)."""
    return entropy(seed, name, *ids) >> 65
