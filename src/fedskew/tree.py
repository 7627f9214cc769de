"""Arithmetic on dicts of tensors. A stacked tree carries a leading client axis: every leaf is (K, ...)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

Tree = dict[str, Tensor]


def apply(f: Callable[..., Tensor], *trees: Tree) -> Tree:
    """`f` leaf by leaf; the trees have the same keys."""
    return {key: f(*(t[key] for t in trees)) for key in trees[0]}


def _at_once(f: Callable[..., Sequence[Tensor]], a: Tree, b: Tree, **how: float) -> Tree:
    """Leaf by leaf in one call, which a GPU answers with one kernel."""
    return dict(zip(a, f(list(a.values()), [b[key] for key in a], **how), strict=True)) if a else {}


def add(a: Tree, b: Tree, scale: float = 1.0) -> Tree:
    """a + scale b."""
    return _at_once(torch._foreach_add, a, b, alpha=scale)


def sub(a: Tree, b: Tree) -> Tree:
    """a - b."""
    return _at_once(torch._foreach_sub, a, b)


def zeros_like(a: Tree) -> Tree:
    """A tree of zeros."""
    return apply(torch.zeros_like, a)


def stack(trees: Iterable[Tree]) -> Tree:
    """K trees as one stacked tree."""
    return apply(lambda *leaves: torch.stack(leaves), *trees)


def part(stacked: Tree, clients: slice) -> Tree:
    """Some clients of a stacked tree."""
    return apply(lambda x: x[clients], stacked)


def scaled(stacked: Tree, by: Tensor) -> Tree:
    """Every client's tree times its number of by (K,)."""
    return apply(lambda x: x * by.to(x.dtype).reshape(-1, *[1] * (x.dim() - 1)), stacked)


def summed(stacked: Tree) -> Tree:
    """The sum over clients."""
    return apply(lambda x: x.sum(dim=0), stacked)


def one(stacked: Tree, k: int) -> Tree:
    """One client of a stacked tree."""
    return apply(lambda x: x[k], stacked)


def mean(stacked: Tree, n: Tensor) -> Tree:
    """The mean over clients weighted by their examples n (K,); integer leaves (counters) stay integers."""
    share = n.double() / n.double().sum()

    def weighted(x: Tensor) -> Tensor:
        real = x if x.is_floating_point() else x.double()
        total: Tensor = torch.tensordot(share.to(real.dtype), real, dims=1)
        return total if x.is_floating_point() else total.round().to(x.dtype)

    return apply(weighted, stacked)


def size(a: Tree) -> int:
    """How many numbers the tree has."""
    return sum(x.numel() for x in a.values())


def nbytes(a: Tree) -> int:
    """How many bytes the tree takes."""
    return sum(x.numel() * x.element_size() for x in a.values())
