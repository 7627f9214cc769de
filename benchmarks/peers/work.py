"""What a system is given and how it answers: a round's data in a folder, and rounds asked for on stdin.

Needs numpy only, so that it runs in every peer's environment.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]  # single precision; double where weights are compared
Weights = dict[str, Floats]
ANSWER = "seconds "  # what a line of ours begins with on stdout; libraries print there too


@dataclass(frozen=True)
class Work:
    """A round: clients with examples in the order of their batches, the network and its weights at the start."""

    x: Floats  # (K, n, ...) as the network sees them: cropped, flipped and scaled already
    y: NDArray[np.int64]  # (K, n)
    w: Weights
    layers: list[dict[str, Any]]  # kind (conv, relu, pool, flatten, linear), name, and the layer's numbers
    batch: int
    lr: float

    def save(self, folder: Path) -> None:
        """Write it for another process."""
        arrays: dict[str, Any] = {f"w:{name}": leaf for name, leaf in self.w.items()}
        np.savez(folder / "work.npz", x=self.x, y=self.y, **arrays)
        (folder / "work.json").write_text(json.dumps({"layers": self.layers, "batch": self.batch, "lr": self.lr}))


@cache
def load(folder: str) -> Work:
    """Read it once a process."""
    with np.load(Path(folder) / "work.npz") as arrays:
        w = {name[2:]: arrays[name] for name in arrays.files if name.startswith("w:")}
        return Work(x=arrays["x"], y=arrays["y"], w=w, **json.loads((Path(folder) / "work.json").read_text()))


def serve(a_round: Callable[[], Weights], asked: Iterable[str] = sys.stdin, answers: bool = True) -> None:
    """A round from the starting weights for each line; a line may name a file for the weights that come of it."""
    for line in asked:
        began = time.perf_counter()
        w = a_round()
        seconds = time.perf_counter() - began
        if not answers:
            continue
        if line.strip():
            np.savez(line.strip(), **w)  # type: ignore[arg-type]
        print(f"{ANSWER}{seconds}", flush=True)
