"""Any network with a client axis, through torch.func: grad of functional_call under vmap."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm

from fedskew.engine.folded import Step
from fedskew.engine.seeded import set_keys
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
            count = self.num_batches_tracked + 1
            m = self.momentum if self.momentum is not None else 1 / count.to(x.dtype)
            self.new = {
                "running_mean": ((1 - m) * self.running_mean + m * mean).detach(),
                "running_var": ((1 - m) * self.running_var + m * square / (n - 1).clamp_min(1)).detach(),
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

    def loss_of(w: Tree, stats: Tree, x: Tensor, y: Tensor, mask: Tensor, key: Tensor) -> tuple[Tensor, Any]:
        set_keys(model, key)
        for norm in norms.values():
            norm.mask = mask
        logits = functional_call(model, w | stats, (x,))
        each = cross_entropy(logits, y, reduction="none") * mask
        new = {f"{name}.{key}": value for name, norm in norms.items() for key, value in norm.new.items()}
        return each.sum() / mask.sum().clamp_min(1), (each.detach().sum(), stats | new)

    per_client = vmap(grad(loss_of, has_aux=True), randomness="different")

    def gradients(step: Step, x: Tensor, y: Tensor) -> tuple[Tree, Tensor]:
        grads, (losses, new_stats) = per_client(step.w, step.stats, x, y, step.mask, step.keys)
        step.new_stats.update(new_stats)
        return grads, losses

    return gradients


def _replace_norms(model: nn.Module) -> list[tuple[str, MaskedBatchNorm]]:
    found = []
    for path, module in list(model.named_modules()):
        if isinstance(module, _BatchNorm):
            parent, _, name = path.rpartition(".")
            masked = MaskedBatchNorm(module)
            setattr(model.get_submodule(parent) if parent else model, name, masked)
            found.append((path, masked))
    return found
