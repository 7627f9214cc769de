"""How the clients' weights become one: the average by examples, and means that a few wrong clients cannot move far."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from fedskew import tree
from fedskew.algorithms.state import State
from fedskew.engine.problem import Trained
from fedskew.errors import FedskewError
from fedskew.spec import Spec, parse
from fedskew.tree import Tree


class Average(Spec):
    """sum_k n_k / n w_k (McMahan et al. 2017)."""

    kind: Literal["average"] = "average"

    def __call__(self, s: State, trained: Trained, n: Tensor) -> State:
        """Weights and batch-norm statistics of the whole cohort."""
        return {"w": tree.mean(trained.w, n), "stats": tree.mean(trained.stats, n)}


class Median(Spec):
    """Of every number by itself, the clients' median (Yin et al. 2018, Def. 1); clients count alike."""

    kind: Literal["median"] = "median"

    def __call__(self, s: State, trained: Trained, n: Tensor) -> State:
        """Weights and batch-norm statistics of the whole cohort."""
        return _middle(trained, drop=(len(n) - 1) // 2)


class Trimmed(Spec):
    """Of every number by itself, the mean without a fraction f of the clients at each end (Yin et al. 2018, Def. 2)."""

    kind: Literal["trimmed"] = "trimmed"
    positional: ClassVar[str] = "f"
    f: float = Field(0.1, ge=0, lt=0.5)

    def __call__(self, s: State, trained: Trained, n: Tensor) -> State:
        """Weights and batch-norm statistics of the whole cohort."""
        return _middle(trained, drop=min(int(self.f * len(n) + 1e-9), (len(n) - 1) // 2))


class Krum(Spec):
    """The one client nearest to its K - f - 2 nearest others, for at most f wrong ones (Blanchard et al. 2017)."""

    kind: Literal["krum"] = "krum"
    positional: ClassVar[str] = "f"
    f: int = Field(1, ge=0)

    def __call__(self, s: State, trained: Trained, n: Tensor) -> State:
        """Weights and batch-norm statistics of the chosen client."""
        k = len(n)
        if k < 2 * self.f + 3:
            raise FedskewError(f"krum:{self.f} needs {2 * self.f + 3} clients a round or more, not {k}; lower f")
        apart = torch.stack(
            [_square(tree.sub(trained.w, tree.apply(lambda x, i=i: x[i], trained.w))) for i in range(k)]
        )
        score = apart.sort(dim=1).values[:, 1 : k - self.f - 1].sum(dim=1)  # the nearest of all is the client itself
        chosen = score.nan_to_num(nan=torch.inf).argmin(dim=0, keepdim=True)  # NaN would count as the least
        return {
            key: tree.apply(lambda x: x.index_select(0, chosen)[0], leaves)
            for key, leaves in (("w", trained.w), ("stats", trained.stats))
        }


class Clip(Spec):
    """The average of updates shortened to this norm (McMahan et al. 2018, FlatClip)."""

    kind: Literal["clip"] = "clip"
    positional: ClassVar[str] = "norm"
    norm: float = Field(10.0, gt=0)

    def __call__(self, s: State, trained: Trained, n: Tensor) -> State:
        """Clipped weights; batch-norm statistics are averaged as they are."""
        update = tree.apply(torch.sub, trained.w, s["w"])
        share = (self.norm / _square(update).sqrt().clamp_min(1e-30)).clamp_max(1.0)
        w = tree.add(s["w"], tree.mean(tree.scaled(update, share), n))
        return {"w": w, "stats": tree.mean(trained.stats, n)}


def _middle(trained: Trained, drop: int) -> State:
    """The mean of each number's middle values, `drop` of them left out at either end."""

    def of(x: Tensor) -> Tensor:
        kept = x.sort(dim=0).values[drop : len(x) - drop]
        return kept.mean(dim=0) if x.is_floating_point() else kept.double().mean(dim=0).round().to(x.dtype)

    return {"w": tree.apply(of, trained.w), "stats": tree.apply(of, trained.stats)}


def _square(stacked: Tree) -> Tensor:
    """(K,) squared norms, in double precision."""
    return torch.stack([leaf.double().flatten(1).square().sum(dim=1) for leaf in stacked.values()]).sum(dim=0)


AnyMean = Average | Median | Trimmed | Krum | Clip
KINDS: tuple[type[AnyMean], ...] = (Average, Median, Trimmed, Krum, Clip)


def _parsed(value: object) -> object:
    return parse("mean", value, KINDS) if isinstance(value, str) else value


Mean = Annotated[Annotated[AnyMean, Field(discriminator="kind")], BeforeValidator(_parsed)]
