"""Checkpoint files: safetensors, written whole or not at all, believed only when their sha256 agrees."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import safetensors.torch
import torch

from fedskew.errors import FedskewError
from fedskew.store.entry import checkpoint_name
from fedskew.tree import Tree

State = dict[str, Tree]

_LAYOUT = "layout"  # safetensors sorts its tensors; sums over leaves depend on the order, so it is kept apart


class Unusable(Exception):
    """Why a checkpoint file cannot be used."""


def pack(state: State) -> bytes:
    """The state as safetensors, leaves named `tree/leaf`; equal states give equal bytes."""
    if slashed := [tree for tree in state if "/" in tree]:
        raise ValueError(f"the name of a tree has no slash: {slashed[0]!r}")
    leaves = {
        # a copy each: safetensors refuses tensors that share memory or are not contiguous
        f"{tree}/{leaf}": x.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for tree, leaves in state.items()
        for leaf, x in leaves.items()
    }
    layout = json.dumps([[tree, list(leaves)] for tree, leaves in state.items()])
    return safetensors.torch.save(leaves, {_LAYOUT: layout})


def unpack(data: bytes) -> State:
    """The state that `pack` was given, trees and leaves in their order."""
    leaves = safetensors.torch.load(data)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    layout = json.loads(header["__metadata__"][_LAYOUT])
    return {tree: {leaf: leaves[f"{tree}/{leaf}"] for leaf in names} for tree, names in layout}


def write(folder: Path, round: int, state: State | bytes) -> tuple[str, int]:
    """Write the state (or what `pack` made of it) to a temporary file, fsync, rename, fsync the folder.

    Gives the file's sha256 and size.
    """
    data = state if isinstance(state, bytes) else pack(state)
    path = folder / checkpoint_name(round)
    part = path.with_suffix(".tmp")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _sync(folder)
    except OSError as e:
        part.unlink(missing_ok=True)  # a half-written file would keep a full disk full
        raise FedskewError(
            f"{path}: the checkpoint could not be written ({e.strerror}); "
            f"mend that and go on with: fedskew resume {folder.name}"
        ) from e
    return hashlib.sha256(data).hexdigest(), len(data)


def read(folder: Path, round: int, sha256: str) -> State:
    """The state of a round; Unusable where the file is not, byte for byte, the one that was written."""
    path = folder / checkpoint_name(round)
    if path.is_symlink():
        raise Unusable("it is a link")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise Unusable("the file is missing") from None
    except OSError as e:
        raise Unusable(str(e.strerror)) from e
    if not data:
        raise Unusable("the file is empty")
    if hashlib.sha256(data).hexdigest() != sha256:
        raise Unusable("its checksum does not match")
    try:
        return unpack(data)
    except (safetensors.SafetensorError, KeyError, ValueError) as e:
        raise Unusable(f"it is not a checkpoint ({e})") from e


def keep(folder: Path, rounds: set[int]) -> None:
    """Remove every checkpoint but those of `rounds`, and what killed writers left behind."""
    wanted = {checkpoint_name(r) for r in rounds}
    for pattern in ("*.tmp", "round-*.safetensors"):
        for path in folder.glob(pattern):
            if path.name not in wanted:
                path.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    if os.name == "nt":  # Windows cannot open a folder; its rename is already journalled
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
