"""Which way of training a cohort is the fastest on a CPU, from the shape alone.

Milliseconds of a round on two cores, 120 examples a client, B = 10:
                              1 client      3 clients     10 clients
                          stacked threads  stacked threads  stacked threads
softmax, 28 x 28 images       5.9     7.7      5.4    19.6      8.0    61.9
MLP, 8 x 8 digits            10.0    13.8     12.3    31.3     18.0    86.8
MLP, 28 x 28 images           9.9    18.8     17.3    38.7     42.5   107.4
Convolutional networks take 0.22 to 0.80 of the loop's time in threads and 0.28 to 1.29 stacked
(benchmarks/results/engine_cpu.json).
"""

from __future__ import annotations

from typing import Literal

from fedskew.engine import dense
from fedskew.engine.batches import Cohort
from fedskew.engine.problem import Problem

Way = Literal["stacked", "threaded", "loop"]


def pick(problem: Problem, cohort: Cohort) -> Way:
    """Stacked for chains of linear layers, whose time is all calls; else, and in bfloat16, one client a thread.

    A client without a batch left costs a stacked step as much as one with, so a cohort in which most have none left for
    most of the steps is not stacked.
    """
    if problem.half:
        return "threaded"
    clients, steps, _ = cohort.index.shape
    abreast = int(cohort.mask.any(dim=2).sum()) / steps
    return "stacked" if dense.chain(problem) is not None and abreast >= clients / 4 else "threaded"
