"""The oracle: one client after another, one `torch.optim.SGD` each. Every faster way is held to this one."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedskew import tree
from fedskew.data import transforms
from fedskew.engine.batches import Cohort
from fedskew.engine.features import watched
from fedskew.engine.functional import function_of
from fedskew.engine.problem import Problem, Task, Trained, weights
from fedskew.engine.seeded import set_keys
from fedskew.engine.terms import Terms, contrast, smoothed
from fedskew.tree import Tree


def local(problem: Problem, task: Task) -> Trained:
    """McMahan et al. 2017, Algorithm 1, ClientUpdate, for every client of the cohort, with the method's terms."""
    done = [_client(problem, task, k) for k in range(len(task.cohort))]
    return Trained(
        w=tree.stack(end for end, _, _ in done),
        stats=tree.stack(buffers for _, buffers, _ in done),
        loss=torch.stack([loss for _, _, loss in done]),
    )


def _client(problem: Problem, task: Task, k: int) -> tuple[Tree, Tree, Tensor]:
    cohort, model = task.cohort, problem.model.train()
    with torch.no_grad():  # by name and not load_state_dict, which wants every name of a weight that has two
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            tensor.copy_(task.w[name] if name in task.w else task.stats[name])
    optimiser = torch.optim.SGD(
        model.parameters(), lr=cohort.lr, momentum=problem.momentum, weight_decay=problem.weight_decay
    )
    total, seen = torch.zeros((), device=problem.x.device, dtype=torch.float64), 0
    with torch.random.fork_rng(devices=[problem.x.device] if problem.x.is_cuda else []):
        torch.manual_seed(int(cohort.keys[k]))  # for a user's own random layers
        for s, (index, size, drawn) in enumerate(_batches(cohort, k)):
            set_keys(model, cohort.keys[k] + s)
            x = transforms.training(problem.transform, problem.x[index], drawn, problem.dtype)
            loss = _loss(model, task, k, x, problem.y[index])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            _add_drift(model, task, k)
            optimiser.step()
            total += loss.detach() * size
            seen += size
    return *weights(model), total / seen


def _loss(model: nn.Module, task: Task, k: int, x: Tensor, y: Tensor) -> Tensor:
    """The mean loss of a batch."""
    terms = task.terms
    if terms.contrast is None:
        return _cross_entropy(model(x), y, terms, k)
    with torch.no_grad():
        sent, previous = (_features(model, x, w, task.stats) for w in (task.w, tree.one(terms.contrast.previous, k)))
    with watched(model) as seen:
        loss = _cross_entropy(model(x), y, terms, k)
    (features,) = seen
    each = contrast((a.unsqueeze(0) for a in (features, sent, previous)), terms.contrast.temperature[k, None])
    return loss + terms.contrast.mu[k] * each.mean()


def _cross_entropy(z: Tensor, y: Tensor, terms: Terms, k: int) -> Tensor:
    if terms.logits is None:
        return cross_entropy(z, y)
    return smoothed(z, y, terms.logits.scale[k], terms.logits.offset[k], terms.logits.smoothing[k]).mean()


def _features(model: nn.Module, x: Tensor, w: Tree, stats: Tree) -> Tensor:
    """What other weights make of a batch; the batch-norm statistics they would leave are thrown away."""
    with watched(model) as seen:
        function_of(model)(w | tree.apply(torch.clone, stats), x)
    (features,) = seen
    return features


def _add_drift(model: nn.Module, task: Task, k: int) -> None:
    drift = task.terms.drift
    if drift is None:
        return
    for name, p in model.named_parameters():
        if p.grad is not None:
            p.grad += drift.pull[k].to(p.dtype) * (p.detach() - task.w[name])
            if drift.shift:
                p.grad += drift.shift[name][k]


def _batches(cohort: Cohort, k: int) -> list[tuple[Tensor, int, Tensor | None]]:
    """Client k's batches without their padding: index, number of examples, draws."""
    sizes = cohort.mask[k].sum(dim=1).tolist()
    return [
        (cohort.index[k, s, :size], size, None if cohort.draws is None else cohort.draws[k, s, :size])
        for s, size in enumerate(sizes)
        if size
    ]
