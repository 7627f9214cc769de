"""Runs that train abreast: which of their cohorts share a step, and what time each of them took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from fedskew.engine.problem import Task

# Cohorts with more steps than the shortest by this factor train apart: a padded step costs as much as any other.
LONGER = 1.25


class Clock:
    """Time that each run took; runs that train abreast share it evenly. It stands still while a row is looked at."""

    def __init__(self, runs: int) -> None:
        self.idle = 0.0
        self.at = self.now()
        self.share = 0.0  # what a run has taken that trained from the beginning on
        self.last = [0.0] * runs

    def now(self) -> float:
        """Seconds, without those that it stood still."""
        return time.perf_counter() - self.idle

    def since_last(self, run: int, abreast: int) -> float:
        """What a run took since its last row; so many have trained abreast since any row."""
        now = self.now()
        self.share += (now - self.at) / abreast
        self.at = now
        before, self.last[run] = self.last[run], self.share
        return self.share - before

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """While this lasts, the clock stands."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.idle += time.perf_counter() - began


def by_shape(tasks: dict[int, Task], paces: dict[tuple[int, int], int]) -> list[list[int]]:
    """Tasks that lose little by being padded to each other: of one batch size and of about as many steps.

    A run keeps the pace of its first round (`paces`), so that the same runs meet every time and a GPU's programs are
    used again. MOON's stay apart, at three times the cost of a step.
    """
    groups: dict[tuple[int, bool], list[int]] = {}
    for i, task in tasks.items():
        _, steps, batch = task.cohort.index.shape
        paces.setdefault((i, batch), steps)
        groups.setdefault((batch, task.terms.contrast is not None), []).append(i)
    found = []
    for (batch, _), alike in groups.items():
        alike.sort(key=lambda i: paces[i, batch])
        first = 0
        for at, i in enumerate(alike):
            if paces[i, batch] > LONGER * paces[alike[first], batch]:
                found.append(alike[first:at])
                first = at
        found.append(alike[first:])
    return found
