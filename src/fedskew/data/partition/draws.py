"""Random label counts: Dirichlet and multinomial draws that hold at every concentration and every edge."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedskew.data.partition.fields import Floats
from fedskew.data.partition.parts import Ints

BLOCK = 1 << 20  # numbers drawn at once; with another block a seed would give other clients


def finite(alpha: float) -> float:
    """A concentration for 0 and infinity, too: one class, or the prior itself, to the last bit of a draw."""
    return min(max(alpha, 1e-200), 1e300)


def log_dirichlet(rng: np.random.Generator, concentration: Floats, rows: int) -> Floats:
    """Rows of log q + constant with q ~ Dir(concentration).

    Gamma(a) = Gamma(a + 1) U^(1/a) in law, so the logarithm exists where Gamma(a) itself underflows to zero.
    """
    shape = (rows, len(concentration))
    log_q = rng.standard_gamma(concentration + 1.0, shape)
    np.log(log_q, out=log_q)
    wait = rng.standard_exponential(shape)
    wait /= concentration
    log_q -= wait
    return log_q


def softmax(log_q: Floats) -> Floats:
    """The probabilities of each row."""
    q: Floats = log_q - log_q.max(axis=-1, keepdims=True)
    np.exp(q, out=q)
    q /= q.sum(axis=-1, keepdims=True)
    return q


def capped(rng: np.random.Generator, log_q: Floats, n: int, room: Ints) -> Ints:
    """n draws by q of which class c can give room[c]; when one runs out, q is renormalised over the rest."""
    taken = np.zeros_like(room)
    while n > 0:
        still = np.flatnonzero(taken < room)
        drawn = np.minimum(rng.multinomial(n, softmax(log_q[still])), (room - taken)[still])
        taken[still] += drawn
        n -= int(drawn.sum())
    return taken


def label_counts(
    rng: np.random.Generator, concentration: Floats, room: Ints, size: int, clients: int
) -> Iterator[Ints]:
    """Blocks (b, C) of the label counts of clients with `size` examples each and q ~ Dir(concentration).

    A Dirichlet restricted to some classes and renormalised is the Dirichlet of those classes' parameters. So
    once a class has run out, the clients after that one are drawn anew among the other classes. Blocks start
    small after that and grow, so that many classes that run out soon after each other cost few draws.
    """
    room = room.copy()
    block = most = max(1, BLOCK // len(room))
    while clients:
        live = np.flatnonzero((room > 0) & (concentration > 0))
        log_q = log_dirichlet(rng, concentration[live], min(block, clients))
        drawn = rng.multinomial(size, softmax(log_q))
        short = (np.cumsum(drawn, axis=0) > room[live]).any(axis=1)
        edge = int(short.argmax()) if short.any() else len(drawn)
        counts = np.zeros((min(edge + 1, len(drawn)), len(room)), np.int64)
        counts[:edge, live] = drawn[:edge]
        room -= counts.sum(axis=0)
        block = min(2 * len(counts), most)
        if edge < len(drawn):
            counts[edge, live] = capped(rng, log_q[edge], size, room[live])
            room -= counts[edge]
        clients -= len(counts)
        yield counts
