"""What a method carries from round to round; and what it remembers of single clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from fedskew import tree
from fedskew.tree import Tree

State = dict[str, Tree]  # "w" the global weights, "stats" the batch-norm statistics, and what the method adds
Keep = Literal["device", "cpu"]  # where clients' memory lives between rounds


def recall(s: State, name: str, clients: Sequence[int], otherwise: Tree) -> Tree:
    """What is remembered of these clients, (K, ...); `otherwise` of one who takes part for the first time."""
    device = next(iter(otherwise.values())).device
    found = [s.get(f"client.{k}.{name}", otherwise) for k in clients]
    return tree.apply(lambda *leaves: torch.stack([leaf.to(device) for leaf in leaves]), *found)


def remember(s: State, name: str, clients: Sequence[int], stacked: Tree, keep: Keep) -> State:
    """The memory of all clients so far: it grows with those that have taken part, not with the population."""
    kept = {key: leaves for key, leaves in s.items() if key.startswith("client.")}
    for i, k in enumerate(clients):
        mine = tree.one(stacked, i)
        # a copy: a view would keep the whole cohort alive
        kept[f"client.{k}.{name}"] = tree.apply(lambda x: x.to("cpu" if keep == "cpu" else x.device, copy=True), mine)
    return kept


def swa(s: State, t: int, rounds: int, share: float) -> State:
    """Keep the mean of the last rounds' weights beside them (Izmailov et al. 2018, SWA, over communication rounds)."""
    first = rounds - max(1, round(share * rounds)) + 1
    if t < first:
        return s
    weight = 1 / (t - first + 1)
    for key in ("w", "stats"):
        s[f"swa.{key}"] = _towards(s.get(f"swa.{key}", s[key]), s[key], weight)
    return s


def _towards(mean: Tree, new: Tree, weight: float) -> Tree:
    return tree.apply(lambda a, b: a.lerp(b, weight) if a.is_floating_point() else b, mean, new)
