"""Any network with a client axis, through torch.func: grad of a functional call under vmap."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm

from fedskew.engine.features import watched
from fedskew.engine.folded import Step
from fedskew.engine.functional import function_of
from fedskew.engine.seeded import set_keys
from fedskew.engine.terms import contrast, smoothed
from fedskew.tree import Tree


class MaskedBatchNorm(nn.Module):
    """Batch norm over the real examples of a padded batch; its new statistics wait in `new` until they are fetched."""

    mask: Tensor  # (B,)
    running_mean: Tensor | None
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.weight, self.bias = norm.weight, norm.bias
        for name, buffer in norm.named_buffers():
            self.register_buffer(name, buffer)
        self.eps, self.momentum = norm.eps, norm.momentum
        self.new: Tree = {}

    def forward(self, x: Tensor) -> Tensor:
        """Normalise by the batch, as nn.BatchNorm does in training."""
        places = [0, *range(2, x.dim())]
        shape = [1, -1, *[1] * (x.dim() - 2)]
        real = self.mask.to(x.dtype).reshape(-1, *[1] * (x.dim() - 1))
        n = self.mask.sum() * (x[0, 0].numel())
        mean = (x * real).sum(dim=places) / n.clamp_min(1)
        centred = x - mean.reshape(shape)
        square = (centred.square() * real).sum(dim=places)
        if self.running_mean is not None:
            old = self.new or dict(self.named_buffers())  # a layer that is used twice goes on from its first use
            count = old["num_batches_tracked"] + 1
            m = self.momentum if self.momentum is not None else 1 / count.to(x.dtype)
            self.new = {
                "running_mean": ((1 - m) * old["running_mean"] + m * mean).detach(),
                "running_var": ((1 - m) * old["running_var"] + m * square / (n - 1).clamp_min(1)).detach(),
                "num_batches_tracked": count,
            }
        y: Tensor = centred / (square / n.clamp_min(1) + self.eps).sqrt().reshape(shape)
        if self.weight is not None:
            y = y * self.weight.reshape(shape) + self.bias.reshape(shape)
        return y


def gradients_of(model: nn.Module) -> Callable[[Step, Tensor, Tensor], tuple[Tree, Tensor]]:
    """(step, x (K, B, ...), y (K, B)) -> gradients (K, ...) and each client's summed loss (K,)."""
    model = copy.deepcopy(model).train()
    norms = dict(_replace_norms(model))
    call = function_of(model)

    def loss_of(
        w: Tree, stats: Tree, x: Tensor, y: Tensor, mask: Tensor, key: Tensor, terms: dict[str, Any]
    ) -> tuple[Tensor, Any]:
        set_keys(model, key)
        for norm in norms.values():
            norm.mask, norm.new = mask, {}
        against = terms.get("contrast")
        others = [] if against is None else [features(against[name] | stats, x) for name in ("sent", "previous")]
        watching: AbstractContextManager[list[Tensor]] = nullcontext([]) if against is None else watched(model)
        with watching as seen:
            z = call(w | stats, x)
        each = smoothed(z, y, **terms["logits"]) if "logits" in terms else cross_entropy(z, y, reduction="none")
        if against is not None:
            stacked = (a.unsqueeze(0) for a in (*seen, *others))
            each = each + against["mu"] * contrast(stacked, against["temperature"].unsqueeze(0)).squeeze(0)
        each = each * mask
        new = {f"{name}.{key}": value for name, norm in norms.items() for key, value in norm.new.items()}
        return each.sum() / mask.sum().clamp_min(1), (each.detach().sum(), stats | new)

    def features(w: Tree, x: Tensor) -> Tensor:
        with watched(model) as seen:
            call(w, x)
        for norm in norms.values():
            norm.new = {}  # the statistics that other weights would leave are thrown away
        return seen[0].detach()

    per_client = vmap(grad(loss_of, has_aux=True), randomness="different")

    def gradients(step: Step, x: Tensor, y: Tensor) -> tuple[Tree, Tensor]:
        parts = {"logits": step.logits, "contrast": step.contrast}
        terms = {name: vars(part) for name, part in parts.items() if part is not None}
        grads, (losses, new_stats) = per_client(step.w, step.stats, x, y, step.mask, step.keys, terms)
        step.new_stats.update(new_stats)
        return grads, losses

    return gradients


def _replace_norms(model: nn.Module) -> list[tuple[str, MaskedBatchNorm]]:
    found: dict[nn.Module, tuple[str, MaskedBatchNorm]] = {}
    for path, module in list(model.named_modules(remove_duplicate=False)):
        if isinstance(module, _BatchNorm):
            parent, _, name = path.rpartition(".")
            _, masked = found.setdefault(module, (path, MaskedBatchNorm(module)))
            setattr(model.get_submodule(parent) if parent else model, name, masked)
    return list(found.values())
