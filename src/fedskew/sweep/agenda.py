"""What is still to be trained: what failed is tried again from its checkpoints, first together, then run by run."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from fedskew.rounds import Row
from fedskew.sweep.groups import Group


@dataclass(frozen=True)
class Begun:
    """A worker has begun with some runs."""

    ids: list[str]
    where: str


@dataclass(frozen=True)
class Trained:
    """A run got one row further."""

    id: str
    row: Row


@dataclass(frozen=True)
class Failed:
    """A try ended before its runs did."""

    ids: list[str]
    why: str
    next: str  # what becomes of them


Event = Begun | Trained | Failed


@dataclass(frozen=True)
class Try:
    """Runs that train together, for the n-th time."""

    ids: list[str]
    number: int = 1


class Agenda:
    """Tries in their order."""

    def __init__(self, groups: Sequence[Group], retries: int) -> None:
        self.waiting = deque(Try(group.ids) for group in groups)
        self.retries = retries

    def next(self) -> Try | None:
        """The next one to start, if any is left."""
        return self.waiting.popleft() if self.waiting else None

    def failed(self, at: Try, ids: Sequence[str], why: str, *, mistake: bool) -> Failed:
        """Decide what becomes of those runs of a failed try that are not over.

        Trying again does not help against a mistake, but of several runs that train together one may have made it.
        """
        ids = list(ids)
        if not mistake and at.number <= self.retries:
            self.waiting.appendleft(Try(ids, at.number + 1))
            return Failed(ids, why, f"try {at.number + 1} of {self.retries + 1}")
        if len(at.ids) > 1:
            self.waiting.extendleft(Try([id], self.retries + 1) for id in reversed(ids))
            return Failed(ids, why, "each is tried alone")
        return Failed(ids, why, "given up")
