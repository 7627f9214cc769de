"""One client a thread: the fast form for convolutional networks on a CPU, where arithmetic is what costs.

A client trains alone in one thread, so its weights do not depend on the other clients, on the order in which threads
run or on their number. Images are channels-last, and chains of layers take the cheaper form of engine/chain.py.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from queue import SimpleQueue

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedskew import tree
from fedskew.data import transforms
from fedskew.engine import loop, threads
from fedskew.engine.batches import Cohort
from fedskew.engine.chain import Chain, known
from fedskew.engine.problem import Problem, Trained
from fedskew.engine.seeded import set_keys
from fedskew.tree import Tree

GATHER = 500  # examples made ready at a time: enough to hide the cost of a call, few enough to stay in a cache


def local(problem: Problem, w: Tree, stats: Tree, cohort: Cohort) -> Trained:
    """McMahan et al. 2017, Algorithm 1, ClientUpdate, for as many clients at a time as there are threads.

    Fewer clients than threads share the spare ones inside large layers; only then do the last bits depend on how many.
    A network that draws from torch's generator (other than through dropout layers) is left to the loop: the generator
    belongs to the process, so threads would disturb each other's draws.
    """
    threads.keep_memory()
    channels_last = _layout(problem, w, stats, cohort)
    if channels_last is None:
        return loop.local(problem, w, stats, cohort)
    k = len(cohort)
    trained = Trained(_rows(w, k), _rows(stats, k), torch.empty(k, dtype=torch.float64))
    available = torch.get_num_threads()
    workers = min(available, k)
    inside = available // workers if available > workers and _large(problem, cohort) else 1
    spare: SimpleQueue[_Worker] = SimpleQueue()
    for _ in range(workers):
        spare.put(_Worker(problem, channels_last))
    stop = threading.Event()

    def client(k: int) -> None:
        worker = spare.get()
        try:
            worker.train(w, stats, cohort, k, trained, stop)
        finally:  # the thread may be given another client before it hears of an error
            spare.put(worker)

    with (
        threads.restored(),
        ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(inside,)) as pool,
    ):
        try:
            largest_first = cohort.mask.sum(dim=(1, 2)).argsort(descending=True, stable=True).tolist()
            futures = [pool.submit(client, k) for k in largest_first]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        finally:  # after an error or an interrupt nobody starts another step
            stop.set()
            pool.shutdown(cancel_futures=True)
    return trained


class _Worker:
    """A thread's own copy of the network."""

    def __init__(self, problem: Problem, channels_last: bool) -> None:
        self.problem, self.channels_last = problem, channels_last
        self.model = copy.deepcopy(problem.model).train()
        if channels_last:
            for p in self.model.parameters():
                p.data = _channels_last(p.data)
        self.chain = Chain(self.model)
        self.leaves: list[Tensor] = [
            p for name, p in self.model.named_parameters() if p.requires_grad and name not in self.chain.descents
        ]
        self.velocity: list[Tensor] | None = None

    def train(self, w: Tree, stats: Tree, cohort: Cohort, k: int, into: Trained, stop: threading.Event) -> None:
        """Train client k and write its row; leave early, with nothing of use, when told to stop."""
        self.load(w, stats, cohort.lr)
        losses, sizes = [], []
        for s, (x, y) in enumerate(_batches(self.problem, cohort, k, self.channels_last)):
            if stop.is_set():
                return
            losses.append(self.step(x, y, cohort.keys[k] + s, cohort.lr))
            sizes.append(len(y))
        n = torch.tensor(sizes, dtype=torch.float64)
        into.loss[k] = (torch.stack(losses) * n).sum() / n.sum()
        for tensors, rows in ((self.model.named_parameters(), into.w), (self.model.named_buffers(), into.stats)):
            for name, tensor in tensors:
                rows[name][k].copy_(tensor.detach())

    def load(self, w: Tree, stats: Tree, lr: float) -> None:
        """Start a client from the weights that were sent."""
        momentum = self.problem.momentum
        with torch.no_grad():
            for name, p in self.model.named_parameters():
                p.copy_(w[name])
            for name, b in self.model.named_buffers():
                b.copy_(stats[name])
        self.velocity = [torch.zeros_like(p) for p in self.leaves] if momentum else None
        for descent in self.chain.descents.values():
            descent.lr, descent.weight_decay, descent.momentum = lr, self.problem.weight_decay, momentum
            descent.velocity = torch.zeros_like(descent.w) if momentum else None

    def step(self, x: Tensor, y: Tensor, key: Tensor, lr: float) -> Tensor:
        """One batch; its mean loss."""
        set_keys(self.model, key)
        loss = cross_entropy(self.chain(x), y)
        grads = torch.autograd.grad(loss, self.leaves, allow_unused=True)
        with torch.no_grad():
            _descend(self.problem, lr, self.leaves, grads, self.velocity)
        return loss.detach()


def _descend(
    problem: Problem, lr: float, w: list[Tensor], grads: tuple[Tensor | None, ...], velocity: list[Tensor] | None
) -> None:
    """torch.optim.SGD's step; a weight that the loss does not depend on stays, and decays not, as there."""
    used = [i for i, g in enumerate(grads) if g is not None]
    w, steps = [w[i] for i in used], [g for g in grads if g is not None]
    if problem.weight_decay:
        steps = list(torch._foreach_add(steps, w, alpha=problem.weight_decay))
    if velocity is not None:
        velocity = [velocity[i] for i in used]
        torch._foreach_mul_(velocity, problem.momentum)
        torch._foreach_add_(velocity, steps)
        steps = velocity
    torch._foreach_add_(w, steps, alpha=-lr)


def _batches(problem: Problem, cohort: Cohort, k: int, channels_last: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """Client k's batches as the network sees them, without padding; many are made ready in one go."""
    sizes = [size for size in cohort.mask[k].sum(dim=1).tolist() if size]
    real = cohort.mask[k]
    index, drawn = cohort.index[k][real], None if cohort.draws is None else cohort.draws[k][real]
    at = 0
    while sizes:
        several = max(1, GATHER // sizes[0])
        now, sizes = sizes[:several], sizes[several:]
        these = slice(at, at := at + sum(now))
        x = problem.x.index_select(0, index[these])  # a tenth of the time of x[index] on a CPU
        x = transforms.training(problem.transform, x, None if drawn is None else drawn[these], problem.dtype)
        if channels_last:
            x = _channels_last(x)
        yield from zip(torch.split(x, now), torch.split(problem.y[index[these]], now), strict=True)


def _channels_last(x: Tensor) -> Tensor:
    """A copy with the strides of channels-last, one channel included, for which torch's own conversion does nothing."""
    if x.dim() != 4:
        return x
    return torch.empty_like(x, memory_format=torch.channels_last).copy_(x)


def _layout(problem: Problem, w: Tree, stats: Tree, cohort: Cohort) -> bool | None:
    """Whether the network takes channels-last images; None if it draws random numbers of its own.

    A network that we do not know may call `view` on an image, which channels-last forbids: a trial step tells.
    """
    images = problem.x.dim() == 4 and any(isinstance(m, nn.Conv2d) for m in problem.model.modules())
    if known(problem.model):
        return images
    before = torch.get_rng_state()
    try:
        channels_last = images and _can_step(_Worker(problem, True), w, stats, cohort)
        torch.set_rng_state(before)
        worker = _Worker(problem, channels_last)
        _try(worker, w, stats, cohort)
        drew = not torch.equal(before, torch.get_rng_state())
    finally:
        torch.set_rng_state(before)
    return None if drew else channels_last


def _can_step(worker: _Worker, w: Tree, stats: Tree, cohort: Cohort) -> bool:
    try:
        _try(worker, w, stats, cohort)
    except RuntimeError:
        return False
    return True


def _try(worker: _Worker, w: Tree, stats: Tree, cohort: Cohort) -> None:
    worker.load(w, stats, cohort.lr)
    x, y = next(_batches(worker.problem, cohort, 0, worker.channels_last))
    worker.step(x, y, cohort.keys[0], cohort.lr)


def _large(problem: Problem, cohort: Cohort) -> bool:
    """Whether a step gains from a second thread."""
    x, _ = next(_batches(problem, cohort, 0, channels_last=False))
    return threads.step_flops(problem.model, tuple(x.shape[1:]), cohort.index.shape[2]) >= threads.SMALL_STEP


def _rows(a: Tree, k: int) -> Tree:
    """Room for k clients."""
    return tree.apply(lambda x: torch.empty((k, *x.shape), dtype=x.dtype, device=x.device), a)
