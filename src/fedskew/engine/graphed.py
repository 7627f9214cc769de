"""The stacked engine on a GPU: one step is recorded as a CUDA graph and replayed for every step of a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedskew import tree
from fedskew.data import transforms
from fedskew.engine import folded, stacked
from fedskew.engine.batches import Cohort, joined
from fedskew.engine.problem import Problem, Task, Trained
from fedskew.errors import FedskewError
from fedskew.tree import Tree


class Graphed:
    """`many` for one problem; a program is recorded for each shape of cohort and kept."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.programs: dict[tuple[int, int, tuple[bool, bool, bool]], _Program] = {}

    def __call__(self, tasks: Sequence[Task]) -> list[Trained]:
        """Copy the cohorts into the recorded program's tensors and replay it; no waiting for the device."""
        cohort = joined([task.cohort for task in tasks])
        k, s, b = cohort.index.shape
        shape = k, b, stacked.joint_shape(tasks)
        program = self.programs.get(shape)
        if program is None or program.index.shape[1] < s:
            self.programs.pop(shape, None)
            program = self.programs[shape] = self._recorded(tasks, cohort)
        return program.run(self.problem, tasks, cohort)

    def _recorded(self, tasks: Sequence[Task], cohort: Cohort) -> _Program:
        try:
            return _Program.record(self.problem, tasks, cohort)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as e:
            reason = str(e).strip().splitlines()[0]
            raise FedskewError(f"this network cannot be trained stacked on a GPU ({reason}); use --engine loop") from e


@dataclass
class _Program:
    """Everything that the graph reads or writes; it must stay referenced as long as the graph does."""

    state: stacked.Cohorts
    index: Tensor  # (K, S, B) with room for the longest cohort so far
    mask: Tensor
    draws: Tensor | None
    keys: Tensor
    at: Tensor  # (1,) the step that the next replay trains
    graph: torch.cuda.CUDAGraph

    @classmethod
    def record(cls, problem: Problem, tasks: Sequence[Task], cohort: Cohort) -> _Program:
        """Run one step twice on a side stream (kernels are compiled there), then record it."""
        program = cls(
            state=stacked.Cohorts.room(problem, tasks).load(problem, tasks),
            index=cohort.index.clone(),
            mask=cohort.mask.clone(),
            draws=None if cohort.draws is None else cohort.draws.clone(),
            keys=cohort.keys.clone(),
            at=torch.zeros(1, dtype=torch.int64, device=problem.x.device),
            graph=torch.cuda.CUDAGraph(),
        )
        ways = ways_of(problem)

        def step() -> None:
            def now(a: Tensor) -> Tensor:
                return a.index_select(1, program.at).squeeze(1)

            drawn = None if program.draws is None else now(program.draws)
            index, mask, keys = now(program.index), now(program.mask), program.keys + program.at
            stacked.step(problem, ways, program.state, index, mask, drawn, keys)
            program.at.add_(1)

        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                program.at.zero_()
                step()
        torch.cuda.current_stream().wait_stream(side)
        program.at.zero_()
        with torch.cuda.graph(program.graph):
            step()
        return program

    def run(self, problem: Problem, tasks: Sequence[Task], cohort: Cohort) -> list[Trained]:
        """One round."""
        steps = cohort.index.shape[1]
        self.state.load(problem, tasks)
        self.at.zero_()
        self.index[:, :steps].copy_(cohort.index)
        self.mask[:, :steps].copy_(cohort.mask)
        self.keys.copy_(cohort.keys)
        if self.draws is not None and cohort.draws is not None:
            self.draws[:, :steps].copy_(cohort.draws)
        for _ in range(steps):
            self.graph.replay()
        loss = self.state.total / cohort.mask.sum(dim=(1, 2))
        w, stats = (tree.apply(torch.clone, a) for a in (self.state.w, self.state.stats))  # the next round overwrites
        return stacked.apart(Trained(w, stats, loss), [len(task.cohort) for task in tasks])


def on_kernels(problem: Problem) -> folded.Network | None:
    """The network on our own kernels; None if they do not fit it, or without Triton."""
    try:
        from fedskew.engine import blocked
    except ImportError:
        return None
    return blocked.lower(problem.model) if problem.dtype == torch.float32 else None


def ways_of(problem: Problem) -> stacked.Ways:
    """How this network is differentiated and its examples are made: our own kernels where they fit."""
    gradients = _in_half(problem, stacked.gradients_of(problem))
    library = stacked.Ways(stacked.inputs, stacked.stepping(gradients, stacked.descend))
    network = on_kernels(problem)
    if network is None:
        return library
    from fedskew.engine import kernels, softmax

    activations = torch.bfloat16 if problem.half else torch.float32

    def examples(problem: Problem, index: Tensor, drawn: Tensor | None) -> Tensor:
        if problem.transform == "crop-flip" and drawn is not None:
            _, h, w = transforms.output_shape("crop-flip", tuple(problem.x.shape[1:]))
            return kernels.images(problem.x, index, drawn, (h, w), activations)
        return stacked.inputs(problem, index, drawn).movedim(2, -1).to(activations).contiguous()

    def descend(problem: Problem, state: stacked.Cohorts, grads: Tree, active: Tensor) -> None:
        for name, leaf in state.w.items():
            kernels.descend(
                *(leaf, grads[name], state.velocity.get(name), state.shift.get(name)),
                *(state.rates, state.decays, active, problem.momentum),
            )

    general = stacked.stepping(stacked.through(network), descend)

    def advance(
        problem: Problem, state: stacked.Cohorts, at: folded.Step, x: Tensor, y: Tensor, active: Tensor
    ) -> Tensor:
        if problem.momentum or state.decaying or state.shift or state.logits or state.contrast:
            return general(problem, state, at, x, y, active)
        leaves = {name: leaf.detach().requires_grad_() for name, leaf in at.w.items()}
        with torch.enable_grad():
            step = replace(at, w=leaves)
            z = network.head(step, network.features(step, x))
        each, d = softmax.cross_entropy(z.detach(), y, at.mask, state.rates * active)
        steps = torch.autograd.grad(z, list(leaves.values()), d)
        torch._foreach_sub_(list(state.w.values()), steps)
        return each.sum(dim=1)

    return stacked.Ways(examples, advance)


def _in_half(problem: Problem, gradients: stacked.Gradients) -> stacked.Gradients:
    """The library's own mixed precision, where our kernels do not fit."""

    def mixed(at: folded.Step, x: Tensor, y: Tensor) -> tuple[Tree, Tensor]:
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            return gradients(at, x, y)

    return mixed if problem.half else gradients
