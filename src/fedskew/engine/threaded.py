"""One client a thread: the fast form for convolutional networks on a CPU, where arithmetic is what costs.

A client trains alone in one thread, so its weights do not depend on the other clients, on the order in which threads
run or on their number. Images are channels-last, and chains of layers take the cheaper form of engine/chain.py.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, wait
from queue import SimpleQueue

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedskew import tree
from fedskew.data import transforms
from fedskew.engine import loop, threads
from fedskew.engine.batches import Cohort
from fedskew.engine.chain import Chain, channels_last, copied, filled, known
from fedskew.engine.problem import Problem, Task, Trained
from fedskew.engine.seeded import set_keys
from fedskew.engine.terms import contrast, smoothed
from fedskew.tree import Tree

GATHER = 500  # examples made ready at a time: enough to hide the cost of a call, few enough to stay in a cache


def local(problem: Problem, task: Task) -> Trained:
    """McMahan et al. 2017, Algorithm 1, ClientUpdate, for as many clients at a time as there are threads.

    Fewer clients than threads share the spare ones inside large layers; only then do the last bits depend on how many.
    A network that draws from torch's generator (other than through dropout layers) is left to the loop: the generator
    belongs to the process, so threads would disturb each other's draws.
    """
    threads.keep_memory()
    cohort, k = task.cohort, len(task.cohort)
    foreign = type(problem.model) is not nn.Sequential  # its features are seen by a hook, which threads would share
    channels_last = None if foreign and task.terms.contrast else _layout(problem, task)
    if channels_last is None:
        with mixed(problem):
            return loop.local(problem, task)
    trained = Trained(_rows(task.w, k), _rows(task.stats, k), torch.empty(k, dtype=torch.float64))
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
            worker.train(task, k, trained, stop)
        finally:  # the thread may be given another client before it hears of an error
            spare.put(worker)

    with threads.pool(workers, inside) as pool:
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


def mixed(problem: Problem) -> torch.autocast:
    """Products of bfloat16 if the problem asks for them; a cast weight is not kept, since the next step changes it."""
    return torch.autocast("cpu", torch.bfloat16, enabled=problem.half, cache_enabled=False)


class _Worker:
    """A thread's own copy of the network."""

    def __init__(self, problem: Problem, last: bool) -> None:
        self.problem, self.channels_last = problem, last
        self.model = copied(problem.model, last).train()
        self.chain = Chain(self.model)
        self.others: list[Chain] = []  # the weights that MOON compares with
        stepped = {
            name: p for name, p in self.model.named_parameters() if p.requires_grad and name not in self.chain.descents
        }
        self.names, self.leaves = list(stepped), list[Tensor](stepped.values())
        self.velocity: list[Tensor] | None = None
        self.shift: list[Tensor] | None = None
        self.decay = 0.0

    def train(self, task: Task, k: int, into: Trained, stop: threading.Event) -> None:
        """Train client k and write its row; leave early, with nothing of use, when told to stop."""
        self.load(task, k)
        losses, sizes = [], []
        for s, (x, y) in enumerate(_batches(self.problem, task.cohort, k, self.channels_last)):
            if stop.is_set():
                return
            losses.append(self.step(x, y, task, k, s))
            sizes.append(len(y))
        n = torch.tensor(sizes, dtype=torch.float64)
        into.loss[k] = (torch.stack(losses) * n).sum() / n.sum()
        for tensors, rows in ((self.model.named_parameters(), into.w), (self.model.named_buffers(), into.stats)):
            for name, tensor in tensors:
                rows[name][k].copy_(tensor.detach())

    def load(self, task: Task, k: int) -> None:
        """Start client k from the weights that were sent."""
        momentum, drift, contrast = self.problem.momentum, task.terms.drift, task.terms.contrast
        filled(self.model, task.w, task.stats)
        self.velocity = [torch.zeros_like(p) for p in self.leaves] if momentum else None
        # pull (w - w0) + shift is more decay and another shift
        self.decay = self.problem.weight_decay + (float(drift.pull[k]) if drift else 0.0)
        shift = _shift(task, k)
        self.shift = [shift[name] for name in self.names] if shift else None
        for name, descent in self.chain.descents.items():
            descent.lr, descent.weight_decay, descent.momentum = task.cohort.lr, self.decay, momentum
            descent.velocity = torch.zeros_like(descent.w) if momentum else None
            descent.shift = shift.get(name)
        if contrast is not None:
            models = [
                filled(copy.deepcopy(self.model), w, task.stats) for w in (task.w, tree.one(contrast.previous, k))
            ]
            self.others = [Chain(model) for model in models]

    def step(self, x: Tensor, y: Tensor, task: Task, k: int, s: int) -> Tensor:
        """One batch; its mean loss."""
        terms, key = task.terms, task.cohort.keys[k] + s
        set_keys(self.model, key)
        with mixed(self.problem):
            features = self.chain.features(x)
            z = self.chain.head(features).to(self.problem.dtype)
        if terms.logits is None:
            loss = cross_entropy(z, y)
        else:
            loss = smoothed(z, y, terms.logits.scale[k], terms.logits.offset[k], terms.logits.smoothing[k]).mean()
        if terms.contrast is not None:
            loss = loss + terms.contrast.mu[k] * self.contrasted(x, features, key, terms.contrast.temperature[k])
        grads = torch.autograd.grad(loss, self.leaves, allow_unused=True)
        with torch.no_grad():
            self.descend(grads, task.cohort.lr)
        return loss.detach()

    def contrasted(self, x: Tensor, features: Tensor, key: Tensor, temperature: Tensor) -> Tensor:
        """MOON's term."""
        with torch.no_grad(), mixed(self.problem):
            others = []
            for chain in self.others:
                set_keys(chain.model, key)
                others.append(chain.features(x))
        seen = (a.to(self.problem.dtype).unsqueeze(0) for a in (features, *others))
        return contrast(seen, temperature.unsqueeze(0)).mean()

    def descend(self, grads: tuple[Tensor | None, ...], lr: float) -> None:
        """torch.optim.SGD's step; a weight that the loss does not depend on stays, and decays not, as there."""
        used = [i for i, g in enumerate(grads) if g is not None]
        w, steps = [self.leaves[i] for i in used], [g for g in grads if g is not None]
        if self.decay:
            steps = list(torch._foreach_add(steps, w, alpha=self.decay))
        if self.shift is not None:
            steps = list(torch._foreach_add(steps, [self.shift[i] for i in used]))
        if self.velocity is not None:
            velocity = [self.velocity[i] for i in used]
            torch._foreach_mul_(velocity, self.problem.momentum)
            torch._foreach_add_(velocity, steps)
            steps = velocity
        torch._foreach_add_(w, steps, alpha=-lr)


def _shift(task: Task, k: int) -> Tree:
    """What client k adds to a gradient beside its decay."""
    drift = task.terms.drift
    if drift is None:
        return {}
    pull = float(drift.pull[k])
    pulled = tree.apply(lambda w: w * -pull, task.w)
    return tree.add(pulled, tree.one(drift.shift, k)) if drift.shift else pulled


def _batches(problem: Problem, cohort: Cohort, k: int, last: bool) -> Iterator[tuple[Tensor, Tensor]]:
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
        if last:
            x = channels_last(x)
        yield from zip(torch.split(x, now), torch.split(problem.y[index[these]], now), strict=True)


def _layout(problem: Problem, task: Task) -> bool | None:
    """Whether the network takes channels-last images; None if it draws random numbers of its own.

    A network that we do not know may call `view` on an image, which channels-last forbids: a trial step tells.
    """
    images = problem.x.dim() == 4 and any(isinstance(m, nn.Conv2d) for m in problem.model.modules())
    if known(problem.model):
        return images
    before = torch.get_rng_state()
    try:
        channels_last = images and _can_step(_Worker(problem, True), task)
        torch.set_rng_state(before)
        worker = _Worker(problem, channels_last)
        _try(worker, task)
        drew = not torch.equal(before, torch.get_rng_state())
    finally:
        torch.set_rng_state(before)
    return None if drew else channels_last


def _can_step(worker: _Worker, task: Task) -> bool:
    try:
        _try(worker, task)
    except RuntimeError:
        return False
    return True


def _try(worker: _Worker, task: Task) -> None:
    worker.load(task, 0)
    x, y = next(_batches(worker.problem, task.cohort, 0, worker.channels_last))
    worker.step(x, y, task, 0, 0)


def _large(problem: Problem, cohort: Cohort) -> bool:
    """Whether a step gains from a second thread."""
    x, _ = next(_batches(problem, cohort, 0, last=False))
    return threads.step_flops(problem.model, tuple(x.shape[1:]), cohort.index.shape[2]) >= threads.SMALL_STEP


def _rows(a: Tree, k: int) -> Tree:
    """Room for k clients."""
    return tree.apply(lambda x: torch.empty((k, *x.shape), dtype=x.dtype, device=x.device), a)
