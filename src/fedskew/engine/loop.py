"""The oracle: one client after another, one `torch.optim.SGD` each. Every faster way is held to this one."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedskew import tree
from fedskew.data import transforms
from fedskew.engine.batches import Cohort
from fedskew.engine.problem import Problem, Trained, weights
from fedskew.engine.seeded import set_keys
from fedskew.tree import Tree


def local(problem: Problem, w: Tree, stats: Tree, cohort: Cohort) -> Trained:
    """McMahan et al. 2017, Algorithm 1, ClientUpdate, for every client of the cohort."""
    done = [_client(problem, w, stats, cohort, k) for k in range(len(cohort))]
    return Trained(
        w=tree.stack(end for end, _, _ in done),
        stats=tree.stack(buffers for _, buffers, _ in done),
        loss=torch.stack([loss for _, _, loss in done]),
    )


def _client(problem: Problem, w: Tree, stats: Tree, cohort: Cohort, k: int) -> tuple[Tree, Tree, Tensor]:
    model = problem.model.train()
    model.load_state_dict(w | stats)
    optimiser = torch.optim.SGD(
        model.parameters(), lr=cohort.lr, momentum=problem.momentum, weight_decay=problem.weight_decay
    )
    total, seen = torch.zeros((), device=problem.x.device, dtype=torch.float64), 0
    with torch.random.fork_rng(devices=[problem.x.device] if problem.x.is_cuda else []):
        torch.manual_seed(int(cohort.keys[k]))  # for a user's own random layers
        for s, (index, size, drawn) in enumerate(_batches(cohort, k)):
            set_keys(model, cohort.keys[k] + s)
            x = transforms.training(problem.transform, problem.x[index], drawn, problem.dtype)
            loss = cross_entropy(model(x), problem.y[index])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            total += loss.detach() * size
            seen += size
    return *weights(model), total / seen


def _batches(cohort: Cohort, k: int) -> list[tuple[Tensor, int, Tensor | None]]:
    """Client k's batches without their padding: index, number of examples, draws."""
    sizes = cohort.mask[k].sum(dim=1).tolist()
    return [
        (cohort.index[k, s, :size], size, None if cohort.draws is None else cohort.draws[k, s, :size])
        for s, size in enumerate(sizes)
        if size
    ]
