"""Methods side by side: one start, one partition and one budget for all, a table and a chart."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fedskew import measure, sweep
from fedskew.algorithms import parse_algorithm
from fedskew.data.partition import Iid
from fedskew.errors import FedskewError
from fedskew.prepare import HOLDOUT, parse_share, parse_warm_up
from fedskew.report import charts
from fedskew.report.page import Figure, Section
from fedskew.report.parts import Chart
from fedskew.report.records import compared, settled
from fedskew.report.tables import Column, Table, megabytes
from fedskew.run import Run
from fedskew.store import Store

VALIDATION = 0.1  # of the training set, to choose learning rates on
GRID = (0.1, 0.3, 1.0, 3.0)  # times the given learning rate
TOWARDS = 0.95  # the target, if none is given: this part of what FedAvg reaches with IID clients


@dataclass(frozen=True)
class Entrant:
    """One line of the table: a run that is repeated with several seeds."""

    run: Run
    remedy: str | None

    @property
    def label(self) -> str:
        """Its name in charts."""
        return f"{self.run.algorithm} + {self.remedy}" if self.remedy else str(self.run.algorithm)


def listed(algorithms: str) -> list[str]:
    """`fedavg,fedavgm:0.9,plain=true,scaffold` as three short strings: `key=value` goes on with the one before it."""
    parts: list[str] = []
    for part in (p.strip() for p in re.split(r"[;,]", algorithms)):
        if parts and re.match(r"[a-z0-9_]+=", part):
            parts[-1] += f",{part}"
        elif part:
            parts.append(part)
    if not parts:
        raise FedskewError("--algorithms names no method; write for example fedavg,fedavgm:0.9")
    return parts


def entrants(
    base: Run, algorithms: Sequence[str], share: str | None, warm_up: str | None, reference: bool = True
) -> list[Entrant]:
    """Every method as it is, with shared data, and with warm-up as well; and FedAvg with IID clients to compare with.

    With sharing, all of them leave the same holdout aside, so that clients hold the same examples in every line.
    """
    if share and base.holdout is None:
        base = base.model_copy(update={"holdout": HOLDOUT})
    remedies: list[dict[str, Any]] = [{}]
    if share:
        remedies.append({"share": parse_share(share)})
    if warm_up:
        remedies.append({"share": parse_share(share), "warm_up": parse_warm_up(warm_up)})
    found = []
    if reference:
        clients = getattr(base.partition, "clients", None)
        even = Iid() if clients is None else Iid(clients=clients)
        found.append(Entrant(_changed(base, algorithm=parse_algorithm("fedavg"), partition=even), "iid clients"))
    for algorithm in algorithms:
        for remedy in remedies:
            run = _changed(base, algorithm=parse_algorithm(algorithm), **remedy)
            found.append(Entrant(run, run.remedy or None))
    return list(dict.fromkeys(found))


def seeded(run: Run, seeds: int) -> list[Run]:
    """The run with as many seeds, from its own on."""
    return [_changed(run, seed=run.seed + i) for i in range(seeds)]


def candidates(entrant: Entrant, rates: Iterable[float]) -> list[Run]:
    """The runs that choose an entrant's learning rate: scored on a validation split, which nobody trains on."""
    return [_changed(entrant.run, lr=lr, validation=VALIDATION) for lr in rates]


def tuned(store: Store, entrant: Entrant, runs: Sequence[Run], ids: Sequence[str]) -> Entrant:
    """The entrant with the learning rate whose run settled highest on the validation split."""
    best, _ = max(zip(runs, ids, strict=True), key=lambda pair: _settled(store, pair[1]))
    return Entrant(_changed(entrant.run, lr=best.lr), entrant.remedy)


def rows(store: Store, field: Sequence[tuple[Entrant, Sequence[str]]], target: float | None) -> list[dict[str, Any]]:
    """The table's rows, the best first; each entrant comes with the ids of its runs."""
    goal = target if target is not None else _usual_target(store, field)
    found = [_row(store, entrant, ids, goal) for entrant, ids in field]
    return sorted(found, key=lambda row: -row["accuracy"])


def _row(store: Store, entrant: Entrant, ids: Sequence[str], target: float | None) -> dict[str, Any]:
    found = compared([store.records(id) for id in ids], [store.find(id).status for id in ids], target)
    return {
        "algorithm": str(entrant.run.algorithm),
        "remedy": entrant.remedy,
        "lr": entrant.run.lr,
        **found,
    }


def table(found: Sequence[dict[str, Any]], base: Run) -> Table:
    """The rows for people."""
    target = next((row["target"] for row in found if row["target"] is not None), None)
    seeds = max((row["seeds"] for row in found), default=0)
    caption = f"Accuracy is the mean of the last {measure.LAST} evaluations and of {seeds} seed{'s' * (seeds != 1)}"
    caption += f"; the target is {target:.1%}" if target is not None else ""
    caption += "; traffic counts weights both ways and shared data once." if found else ""
    return Table(
        f"{base.data}, {base.partition}, {base.rounds} rounds",
        [
            Column("algorithm", "method", align="left"),
            Column("remedy", "remedy", align="left"),
            Column("accuracy", "accuracy", ".1%"),
            Column("std", "±", ".1%"),
            Column("rounds_to_target", "rounds to target", ".0f"),
            Column("bytes", "traffic", megabytes),
            Column("seconds", "seconds", ".1f"),
            Column("lr", "lr", ".4g"),
        ],
        found,
        caption,
    )


def chart(store: Store, field: Sequence[tuple[Entrant, Sequence[str]]], found: Sequence[dict[str, Any]]) -> Chart:
    """Every method's accuracy over rounds, its seeds as a band, in the order of the table."""
    order = [f"{r['algorithm']} + {r['remedy']}" if r["remedy"] else r["algorithm"] for r in found]
    points = [
        {"run": entrant.label, "round": round, "accuracy": accuracy}
        for entrant, ids in sorted(field, key=lambda pair: order.index(pair[0].label))
        for id in ids
        for round, accuracy in store.evaluations(id)
    ]
    return charts.accuracy_curves(points, runs=order)


def sections(found: Sequence[dict[str, Any]], base: Run, curves: Chart) -> list[Section]:
    """The page: the table and the chart."""
    return [
        Section("Which remedy pays", table=table(found, base)),
        Section("Accuracy over rounds", figures=[Figure(curves)]),
    ]


def trained(
    store: Store, runs: Sequence[Run], watch: Callable[[Iterator[Any], int], Iterable[Any]], **how: Any
) -> list[str]:
    """The ids of these runs, all trained to their end; `watch` sees (id, row) pairs pass, of so many rounds."""
    ids, groups = sweep.plan(store, runs)
    for _ in watch(sweep.train(store, groups, **how), sum(group.left for group in groups)):
        pass
    return ids


def _changed(run: Run, **fields: Any) -> Run:
    return Run(**(run.model_dump() | fields))


def _settled(store: Store, id: str) -> float:
    return settled(store.records(id), store.find(id).status) or 0.0


def _usual_target(store: Store, field: Sequence[tuple[Entrant, Sequence[str]]]) -> float | None:
    reference = next((ids for entrant, ids in field if entrant.remedy == "iid clients"), None)
    return None if reference is None else TOWARDS * statistics.fmean(_settled(store, id) for id in reference)
