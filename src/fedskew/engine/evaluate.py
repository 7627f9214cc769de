"""Test accuracy and loss of sets of weights, overall and by class; all sets in one computation where that is faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedskew import tree
from fedskew.data import transforms
from fedskew.engine import chain, folded, threads
from fedskew.engine.functional import function_of
from fedskew.engine.problem import Problem
from fedskew.tree import Tree

CHUNK = 1000  # examples at a time: large enough to fill a CPU, small enough for any memory
A_THREAD = 200  # examples at a time of one thread
NUMBERS = 1 << 27  # that the widest layer of all stacked networks may give: half a GB in single precision


@dataclass(frozen=True)
class Scores:
    """What the test set says; a class without test examples has accuracy NaN."""

    accuracy: float
    loss: float
    per_class: tuple[float, ...]


@dataclass(frozen=True)
class Exam:
    """Weights that are to be scored on these examples."""

    w: Tree
    stats: Tree
    x: Tensor
    y: Tensor
    classes: int


def evaluate_many(problem: Problem, exams: Sequence[Exam]) -> list[Scores]:
    """The scores of each exam; exams of one network on the same examples are one computation where that is faster."""
    if (network := network_of(problem)) is not None:
        return together(problem, network, exams)
    in_chain = not problem.x.is_cuda and chain.known(problem.model)
    return [(in_threads if in_chain else evaluate)(problem, exam) for exam in exams]


def network_of(problem: Problem) -> folded.Network | None:
    """The network with an axis for exams, where they are to be stacked.

    On a CPU, milliseconds of one core, stacked / one after another, for 1, 5 and 20 exams
    (benchmarks/results/evaluation_cpu.json):
    softmax, 10,000 images of 28 x 28     11.4 / 11.4    42 / 61      159 / 254
    MLP, 2,000 images of 28 x 28          12.6 / 11.6    53 / 56      205 / 218
    MLP, 360 digits                        0.9 / 0.8    3.6 / 4.2      15 / 17
    cifar-cnn, 200 images                  147 / 145    794 / 719    3874 / 2854
    lahoti-mnist, 400 images                27 / 27     117 / 136     561 / 593
    kws-cnn, 400 words                      32 / 32     283 / 160    1398 / 700
    """
    if problem.x.is_cuda:
        from fedskew.engine.graphed import on_kernels

        return on_kernels(problem) or folded.lower(problem.model)
    return None if any(isinstance(m, nn.Conv2d) for m in problem.model.modules()) else folded.lower(problem.model)


@torch.no_grad()
def evaluate(problem: Problem, exam: Exam) -> Scores:
    """One exam through the network itself, in chunks on the device; one transfer to the host at the end."""
    model = function_of(problem.model.eval())
    right = torch.zeros(exam.classes, dtype=torch.float64, device=exam.x.device)
    loss = torch.zeros((), dtype=torch.float64, device=exam.x.device)
    for at in range(0, len(exam.x), CHUNK):
        labels = exam.y[at : at + CHUNK]
        batch = transforms.testing(problem.transform, exam.x[at : at + CHUNK], problem.dtype)
        more, lost = _marked(model(exam.w | exam.stats, batch), labels, exam.classes)
        right += more
        loss += lost
    return _scores(_shares(right, loss, exam.y).tolist())


@torch.no_grad()
def in_threads(problem: Problem, exam: Exam) -> Scores:
    """One exam on a CPU, some examples a thread; the same bits however many threads there are.

    10,000 images on two cores: the MNIST CNN takes 1.4 s where 1,000 at a time on two threads take 3.7, the CIFAR CNN
    2.0 s where they take 3.2.
    """
    threads.keep_memory()
    network = chain.Chain(chain.filled(chain.copied(problem.model, last=True).eval(), exam.w, exam.stats))

    @torch.no_grad()
    def part(at: int) -> tuple[Tensor, Tensor]:
        labels = exam.y[at : at + A_THREAD]
        batch = transforms.testing(problem.transform, exam.x[at : at + A_THREAD], problem.dtype)
        return _marked(network(chain.channels_last(batch)), labels, exam.classes)

    with threads.pool(torch.get_num_threads()) as executor:
        rights, losses = zip(*executor.map(part, range(0, len(exam.x), A_THREAD)), strict=True)
    return _scores(_shares(torch.stack(rights).sum(dim=0), torch.stack(losses).sum(), exam.y).tolist())


@torch.no_grad()
def together(problem: Problem, network: folded.Network, exams: Sequence[Exam]) -> list[Scores]:
    """Exams on the same examples stacked (R, ...); nothing waits for the device before all of it is asked for."""
    groups: dict[tuple[int, int, int], list[int]] = {}
    for i, exam in enumerate(exams):
        groups.setdefault((id(exam.x), id(exam.y), exam.classes), []).append(i)
    asked = [_stacked(problem, network, [exams[i] for i in group]) for group in groups.values()]
    scores: dict[int, Scores] = {}
    for group, shares in zip(groups.values(), asked, strict=True):
        scores |= {i: _scores(row) for i, row in zip(group, shares.tolist(), strict=True)}
    return [scores[i] for i in range(len(exams))]


def _stacked(problem: Problem, network: folded.Network, exams: Sequence[Exam]) -> Tensor:
    """The shares of R exams on the same examples."""
    (x, y, classes), runs = (exams[0].x, exams[0].y, exams[0].classes), len(exams)
    right = torch.zeros(runs, classes, dtype=torch.float64, device=x.device)
    loss = torch.zeros(runs, dtype=torch.float64, device=x.device)
    step = folded.Step(
        w=tree.stack(exam.w for exam in exams),
        stats=tree.stack(exam.stats for exam in exams),
        new_stats={},
        mask=torch.ones(runs, 1, dtype=torch.bool, device=x.device),  # nothing is padding
        keys=torch.zeros(runs, dtype=torch.int64, device=x.device),
        testing=True,
    )
    size = _chunk(problem, x, runs)
    for at in range(0, len(x), size):
        labels = y[at : at + size].expand(runs, -1)  # (R, n)
        logits = network.shared(step, transforms.testing(problem.transform, x[at : at + size], problem.dtype))
        right.index_add_(1, labels[0], (logits.argmax(dim=2) == labels).double())
        losses = cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        loss += losses.view(labels.shape).sum(dim=1, dtype=torch.float64)
    return _shares(right, loss, y)


def _chunk(problem: Problem, x: Tensor, runs: int) -> int:
    """How many examples at a time: as many as memory allows on a GPU; a CPU gains nothing beyond its caches."""
    shape = transforms.output_shape(problem.transform, tuple(x.shape[1:]))
    places = shape[1] * shape[2] if len(shape) == 3 else 1
    layers = list(problem.model.modules())
    widths = [m.out_channels * places for m in layers if isinstance(m, nn.Conv2d)]  # at most: strides make it less
    widths += [m.out_features for m in layers if isinstance(m, nn.Linear)]
    most = max(1, NUMBERS // (runs * max([x[0].numel(), *widths])))
    return most if x.is_cuda else min(most, CHUNK)


def _marked(logits: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Right answers by class, and the summed loss."""
    right = torch.zeros(classes, dtype=torch.float64, device=logits.device)
    right.index_add_(0, labels, (logits.argmax(dim=1) == labels).double())
    return right, cross_entropy(logits, labels, reduction="sum").double()


def _shares(right: Tensor, loss: Tensor, y: Tensor) -> Tensor:
    """Right answers (..., C) and summed losses (...) as accuracies by class, accuracy and mean loss, (..., C + 2)."""
    held = right.new_zeros(right.shape[-1])
    held.index_add_(0, y, torch.ones_like(y, dtype=held.dtype))  # torch.bincount would wait for a GPU
    return torch.cat([right / held, torch.stack([right.sum(dim=-1), loss], dim=-1) / len(y)], dim=-1)


def _scores(shares: list[float]) -> Scores:
    *per_class, accuracy, loss = shares
    return Scores(accuracy, loss, tuple(per_class))
