"""Which way of training a cohort is the fastest on a CPU, from the shape alone.

Time over that of the loop with torch's own threads, two cores (all cases: benchmarks/results/engine_cpu.json):
                                     threaded   stacked
softmax regression, 100 clients          0.54      0.08
MLP on 8 x 8 digits, 10 clients          0.62      0.34
softmax regression, 3 clients            0.54      0.45    another run: 0.33 and 0.47, so undecided
MLP on 28 x 28 images, 10 clients        0.40      0.43
convolutional networks             0.22..0.80  0.28..1.29
"""

from __future__ import annotations

from typing import Literal

from torch.nn.modules.conv import _ConvNd

from fedskew.engine.batches import Cohort
from fedskew.engine.chain import known
from fedskew.engine.problem import Problem

Way = Literal["stacked", "threaded", "loop"]

SMALL = 1e6  # multiplications of a client's forward pass; stacking won at 5e5 and lost at 2e6
# Clients in a mean step that are worth stacking. A stacked step takes as long as three to six steps in threads with up
# to ten clients, fifteen with a hundred; nothing between three and ten was measured, nor a ragged cohort.
ABREAST = 8


def pick(problem: Problem, cohort: Cohort) -> Way:
    """Stacked for many clients with small dense networks, whose time is all calls; else one client a thread.

    A network that we did not write is not stacked unasked: threads do what the loop does, whatever it draws or keeps.
    """
    if not known(problem.model) or any(isinstance(m, _ConvNd) for m in problem.model.modules()):
        return "threaded"
    clients, steps, batch = cohort.index.shape
    multiplications = batch * sum(p.numel() for p in problem.model.parameters())
    abreast = int(cohort.mask.any(dim=2).sum()) / steps
    # A client without a batch left costs a stacked step as much as one with.
    worth = abreast >= max(ABREAST, clients / 2)
    return "stacked" if worth and multiplications <= SMALL else "threaded"
