"""The weights that a run begins with: another run's last ones, or a safetensors file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import safetensors
import safetensors.torch

from fedskew.errors import FedskewError
from fedskew.tree import Tree

if TYPE_CHECKING:
    from fedskew.store.store import Store


def read(start: str, store: Store) -> Tree | None:
    """Parameters and batch-norm statistics by name; None where a run begins at random weights."""
    if not start:
        return None
    if start.startswith("run:"):
        _, state = store.state(start.removeprefix("run:"))
        if state is None:
            raise FedskewError(f"start {start}: that run has no checkpoint; train it first")
        return {name: leaf for key in ("w", "stats") for name, leaf in state.get(key, {}).items()}
    try:
        found: Tree = safetensors.torch.load_file(Path(start).expanduser())
    except FileNotFoundError:
        raise FedskewError(f"start {start}: there is no such file; give a .safetensors file or run:ID") from None
    except (OSError, safetensors.SafetensorError) as e:
        raise FedskewError(f"start {start} is not a safetensors file ({e}); give a .safetensors file or run:ID") from e
    ours = {name.partition("/")[2]: leaf for name, leaf in found.items() if name.startswith(("w/", "stats/"))}
    return ours or found  # one of our checkpoints, or a network's plain state
