"""Which way of training a cohort is the fastest on a CPU, from the shape alone.

Measured on two cores, time over the loop's with torch's default threads (benchmarks/results/engine_cpu.json has all):
stacking wins for softmax regression with 100 clients (0.05 against 0.35 with threads) and for the MLP on 8 x 8 digits
with 10 (0.22 against 0.31); threads win for every convolutional network, for the MLP on 28 x 28 images (0.31 against
0.34) and for few clients (softmax regression with three: 0.33 against 0.47). Neither was slower than the loop there.
"""

from __future__ import annotations

from typing import Literal

from torch.nn.modules.conv import _ConvNd

from fedskew.engine.batches import Cohort
from fedskew.engine.chain import known
from fedskew.engine.problem import Problem

Way = Literal["stacked", "threaded", "loop"]

SMALL = 1e6  # multiplications of a client's forward pass, below which calls cost more than arithmetic
ABREAST = (
    8  # clients in a mean step that are worth stacking: a stacked step costs as much as three to six of one client
)


def pick(problem: Problem, cohort: Cohort) -> Way:
    """Stacked for many clients with small dense networks, whose time is all calls; else one client a thread.

    A network that we did not write is not stacked unasked: threads do what the loop does, whatever it draws or keeps.
    """
    if not known(problem.model) or any(isinstance(m, _ConvNd) for m in problem.model.modules()):
        return "threaded"
    clients, steps, batch = cohort.index.shape
    multiplications = batch * sum(p.numel() for p in problem.model.parameters())
    abreast = int(cohort.mask.any(dim=2).sum()) / steps
    worth = abreast >= max(
        ABREAST, clients / 2
    )  # a client without a batch left costs a stacked step as much as one with
    return "stacked" if worth and multiplications <= SMALL else "threaded"
