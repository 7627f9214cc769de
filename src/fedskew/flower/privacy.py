"""Label counts with local differential privacy: what a node may say of its labels without telling them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedskew.errors import FedskewError

# A node's number of examples is public, so neighbouring data sets differ by one example replaced: one count falls by
# one and another rises by one.
SENSITIVITY = 2


def noisy(counts: NDArray[np.int64], epsilon: float, generator: np.random.Generator) -> NDArray[np.int64]:
    """Counts with noise of the Laplace mechanism on whole numbers (Ghosh et al. 2012): P(z) ~ exp(-epsilon |z| / 2).

    It is epsilon-differentially private for one example replaced. On whole numbers, because the low bits of a real
    number with Laplace noise tell what it was (Mironov 2012).
    """
    if not math.isfinite(epsilon) or epsilon <= 0:
        raise FedskewError(f"epsilon = {epsilon} is not above 0; give the privacy that a node may spend, such as 1.0")
    p = -math.expm1(-epsilon / SENSITIVITY)
    return counts + generator.geometric(p, len(counts)) - generator.geometric(p, len(counts))
