"""Stored runs as groups: those that differ in their seed only are one line of a chart and one row of a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedskew.store.entry import Entry, differences

LONGEST = 60  # characters of a run's name that a legend or a table has room for

Record = Mapping[str, Any]
Rows = Sequence[Record]  # of one run, as `Row.record` made them


@dataclass(frozen=True)
class Group:
    """Runs of one spec with several seeds, the rows of each, and their common name in charts."""

    label: str
    entries: tuple[Entry, ...]
    rows: tuple[Rows, ...]

    @property
    def seeds(self) -> list[int]:
        """The seed of each run."""
        return [entry.spec.get("seed", 0) for entry in self.entries]


def grouped(runs: Iterable[tuple[Entry, Rows]]) -> list[Group]:
    """The runs in their order, those of one spec together; every group has a name of its own."""
    alike: dict[str, list[tuple[Entry, Rows]]] = {}
    for entry, rows in runs:
        alike.setdefault(json.dumps(_told(_unseeded(entry)), sort_keys=True), []).append((entry, rows))
    found = []
    for members in alike.values():
        members.sort(key=lambda pair: pair[0].spec.get("seed", 0))
        entries, rows = zip(*members, strict=True)
        found.append(Group(_label(entries), tuple(entries), tuple(rows)))
    return _told_apart(found)


def in_short(algorithm: str, remedy: str) -> str:
    """The algorithm and its remedy without numbers: "fedavg, share, warm-up"."""
    return ", ".join([algorithm, *(part.split()[0] for part in remedy.split(", ") if part)])


def _label(entries: Sequence[Entry]) -> str:
    names = {entry.name for entry in entries}
    first = entries[0]
    if len(names) > 1 or not first.name:
        return f"{in_short(first.algorithm, first.remedy)}, {first.partition}"
    return first.name if len(first.name) <= LONGEST else f"{first.name[: LONGEST - 1]}…"


def _told_apart(groups: Sequence[Group]) -> list[Group]:
    """Two groups of one name are told apart by what differs in their specs, else by their first run's id."""
    found = []
    for group in groups:
        twins = [g for g in groups if g.label == group.label]
        keys = dict.fromkeys(
            key for g in twins for key in differences(_unseeded(g.entries[0]), _unseeded(group.entries[0]))
        )
        extra = ", ".join(f"{key} {_value(group.entries[0].spec, key)}" for key in keys)
        found.append(replace(group, label=f"{group.label}, {extra}") if extra else group)
    labels = [group.label for group in found]
    return [
        replace(group, label=f"{group.label} ({group.entries[0].id})") if labels.count(group.label) > 1 else group
        for group in found
    ]


def _unseeded(entry: Entry) -> dict[str, Any]:
    return {key: value for key, value in entry.spec.items() if key not in ("name", "seed")}


def _told(value: Any) -> Any:
    """Without what is not set: a key that is younger than a stored run was not set in it."""
    if isinstance(value, dict):
        return {key: _told(part) for key, part in value.items() if part not in (None, False, "", 0)}
    return value


def _value(spec: Mapping[str, Any], key: str) -> Any:
    for part in key.split("."):
        spec = spec.get(part) if isinstance(spec, Mapping) else None  # type: ignore[assignment]
    return spec.get("kind") if isinstance(spec, Mapping) else spec
