"""What reproductions share: a cell of a table with its runs, and how large a reproduction is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fedskew.algorithms.method import Method
from fedskew.errors import FedskewError
from fedskew.run import Run

if TYPE_CHECKING:  # a machine that only trains has no charts
    from fedskew.report.tables import Table

Name = Literal["smoke", "quick", "full"]
_OPTIONS = [key for key in Method.model_fields if key != "kind"]


@dataclass(frozen=True)
class Search:
    """Successive halving (Jamieson and Talwalkar 2016): at every rung the best of the candidates go on, one in `keep`.

    Candidates are scored on a validation split, never on the test set. Each is the spec of a run of full length,
    stopped at a rung and gone on with if it is among the best.
    """

    candidates: tuple[Run, ...]
    rungs: tuple[int, ...]  # rounds; the best at the last one is chosen, or whoever is left alone before it
    keep: int = 3

    def __post_init__(self) -> None:
        for run in self.candidates:
            if not run.validation:
                raise FedskewError("a candidate of a search is scored on a validation split; give it validation = 0.1")
            if blind := [rung for rung in self.rungs if rung % run.eval_every and rung < run.rounds]:
                raise FedskewError(f"round {blind[0]} is a rung but no evaluation: eval_every is {run.eval_every}")

    def survivors(self, number: int) -> int:
        """How many of so many go on."""
        return -(-number // self.keep)

    def chosen(self, run: Run, best: Run) -> Run:
        """A run with the learning rate and the method of the best candidate; options of any method stay its own."""
        own = {key: getattr(run.algorithm, key) for key in _OPTIONS if hasattr(run.algorithm, key)}
        method = best.algorithm.model_copy(update={key: own[key] for key in own if hasattr(best.algorithm, key)})
        return Run(**run.model_dump() | {"lr": best.lr, "algorithm": method})


@dataclass(frozen=True)
class Cell:
    """One published number and the runs that reproduce it, one a seed (or a distribution)."""

    where: str  # "table 3", "figure 7a"
    setting: dict[str, Any]  # what a reader needs to find it: {"data": "cifar10", "training": "FedAvg IID", ...}
    runs: tuple[Run, ...]
    paper: float | None  # a fraction; None where the paper gives a picture only
    after: tuple[Run, ...] = ()  # these begin with the last weights of `runs`, seed by seed, and the cell is theirs
    search: Search | None = None  # decides the learning rate and the method of `runs` first

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
    highest_lr: float = math.inf  # smaller batches bear less
    evaluations: int = 50  # of a run, about: a test set of ten thousand can take as long as a round
    passes: int = 100  # of a warm-up to an accuracy that so few examples may never give

    def of(self, rounds: int) -> int:
        """So many rounds at this scale."""
        return max(2, min(self.most, round(self.rounds * rounds)))

    def eval_every(self, rounds: int) -> int:
        """Rounds between evaluations of a run that the paper gives so many rounds."""
        return max(1, self.of(rounds) // self.evaluations)

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


def kept(cells: Sequence[Cell], only: Sequence[str]) -> list[Cell]:
    """The cells with one of the values that `key=value` names for a key; a cell without that key stays."""
    wanted: dict[str, set[str]] = {}
    for text in only:
        key, _, value = text.partition("=")
        wanted.setdefault(key, set()).add(value)
    return [
        cell
        for cell in cells
        if all(key not in cell.setting or _written(cell.setting[key]) in values for key, values in wanted.items())
    ]


def check_only(cells: Sequence[Cell], only: Sequence[str]) -> None:
    """Refuse what is not `key=value`, or has a key that no cell has, or leaves no cell."""
    keys = list(dict.fromkeys(key for cell in cells for key in cell.setting))
    for text in only:
        key, equals, _ = text.partition("=")
        if not equals or key not in keys:
            raise FedskewError(f"--only {text!r}: write KEY=VALUE, as in C=0.05, with a key of {', '.join(keys)}")
    if not kept(cells, only):
        raise FedskewError(f"--only {' --only '.join(only)}: no cell is left of {len(cells)}; change one of the values")


def _written(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
