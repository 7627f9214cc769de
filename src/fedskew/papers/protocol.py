"""What reproductions share: a cell of a table with its runs, and how large a reproduction is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fedskew.run import Run

if TYPE_CHECKING:  # a machine that only trains has no charts
    from fedskew.report.tables import Table

Name = Literal["smoke", "quick", "full"]


@dataclass(frozen=True)
class Cell:
    """One published number and the runs that reproduce it, one a seed (or a distribution)."""

    where: str  # "table 3", "figure 7a"
    setting: dict[str, Any]  # what a reader needs to find it: {"data": "cifar10", "training": "FedAvg IID", ...}
    runs: tuple[Run, ...]
    paper: float | None  # a fraction; None where the paper gives a picture only
    after: tuple[Run, ...] = ()  # these begin with the last weights of `runs`, seed by seed, and the cell is theirs

    @property
    def last(self) -> tuple[Run, ...]:
        """The runs whose accuracy the cell is."""
        return self.after or self.runs


@dataclass(frozen=True)
class Scale:
    """How much of a protocol is trained: all of it, or less data, fewer rounds and fewer values of a sweep."""

    name: Name
    rounds: float = 1.0  # times the paper's, but ...
    most: int = 1 << 30  # ... not more than this
    batch: int = 1  # what batches are divided by: fewer examples a client, and yet as many steps a round
    examples: int | None = None  # of the training set; None: all
    seeds: int = 1
    every: int = 1  # of a sweep's values, the first, the last and every so many between
    data: str | None = None  # another data set in place of the paper's
    model: str = "auto"

    def of(self, rounds: int) -> int:
        """So many rounds at this scale."""
        return max(2, min(self.most, round(self.rounds * rounds)))

    def thinned(self, values: tuple[float, ...]) -> tuple[float, ...]:
        """Some of a sweep's values, both ends among them."""
        return tuple(v for i, v in enumerate(values) if i % self.every == 0 or i == len(values) - 1)


@dataclass(frozen=True)
class Exhibit:
    """One table or figure, reproduced: its records for JSON, its rows for people, its charts with their captions."""

    name: str  # "table 3"
    title: str
    records: list[dict[str, Any]]
    table: Table | None = None
    charts: tuple[tuple[str, Any], ...] = ()

    @property
    def slug(self) -> str:
        """Its name as a file's."""
        return self.name.replace(" ", "")
