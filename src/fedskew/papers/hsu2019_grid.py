"""Hsu et al. 2019: the grid of its section 4, and how much of it each scale tries."""

from __future__ import annotations

from dataclasses import dataclass

from fedskew.papers.protocol import Scale

CLIENTS, BATCH, WEIGHT_DECAY, ROUNDS = 100, 64, 0.004, 10_000
# From the most skewed on. The first fraction is the low, the last the high one of Figures 4 and 6.
ALPHAS = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0, 10.0, 100.0)
FRACTIONS = (0.05, 0.1, 0.2, 0.4)
EPOCHS = (1, 5)
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)
BETAS = (0.0, 0.7, 0.9, 0.97, 0.99, 0.997)
EFFECTIVE = (1e-3, 1.0)  # the effective rates lr / (1 - beta) that are searched; Figure 6 runs from 10^-3 to 10
MANY = 0.2  # from this fraction on a round is dear, and its search is narrow: ...
NEAR = (1e-2, 1e-1)  # ... with C = 0.05 rates of 0.01 to 0.033 were chosen, and a larger cohort is less noisy
# One-class clients learn late: none of those 17 pairs is past 28 % after 150 rounds. For them fewer pairs, the heavy
# ones, train longer, and go further up: searches at other alphas had all chosen the largest rate that they were given.
LATE, HEAVY = (3e-2, 1 / 3), (0.97, 0.99)


@dataclass(frozen=True)
class Grid(Scale):
    """A scale of this paper: which of its grid is tried."""

    alphas: tuple[float, ...] = ALPHAS
    fractions: tuple[float, ...] = FRACTIONS
    epochs: tuple[int, ...] = EPOCHS
    rates: tuple[float, ...] = RATES
    betas: tuple[float, ...] = BETAS
    rungs: tuple[int, ...] = (500, 1250, 3000)  # momentum 0.997 takes 333 rounds to get to its pace
    dear: tuple[int, ...] = (150, 400, 1000)  # rungs where a round is dear, and ...
    late: tuple[int, ...] = ()  # ... there for one-class clients, if these are searched apart
    scored: int = 50  # rounds between evaluations of a candidate, and ...
    evaluated: int = 100  # ... of a run of full length
    splits: str = ""  # a folder with the released split files, in place of populations of our own

    def effective(self, low: float = EFFECTIVE[0], high: float = EFFECTIVE[1]) -> list[tuple[float, float]]:
        """The pairs (lr, beta) with an effective rate in a range, both ends included."""
        return [(lr, beta) for beta in self.betas for lr in self.rates if 0.99 * low <= lr / (1 - beta) <= 1.01 * high]


SCALES = {
    "smoke": Grid(
        *("smoke", 0.002, 12, 16, None, 1, 1, "digits", "softmax"),
        alphas=(0.0, 100.0),
        fractions=(0.05, 0.1),
        epochs=(1,),
        rates=(0.01, 0.1),
        betas=(0.0, 0.9),
        rungs=(2, 6),
        dear=(1, 2),
        scored=1,
        evaluated=2,
    ),
    # The CIFAR network takes a CPU about 2 ms an image: MNIST and a small network show the trends in the time there is.
    "quick": Grid(
        *("quick", 0.02, 200, 8, 6000, 1, 1, "mnist", "mlp"),
        alphas=(0.0, 0.1, 1.0, 100.0),
        fractions=(0.05, 0.2),
        epochs=(1,),
        rates=(0.003, 0.01, 0.03, 0.1, 0.3),
        betas=(0.0, 0.7, 0.9, 0.97),
        rungs=(50, 100),
        dear=(10, 30),
        scored=10,
        evaluated=20,
    ),
    "full": Grid("full", seeds=5, late=(1000, 2500)),
}
