"""What the store knows of one run, and the names by which people ask for it."""

from __future__ import annotations

import json
import re
import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fedskew.errors import FedskewError
from fedskew.prepare import Share, WarmUp, remedy
from fedskew.shown import Shown

PATIENCE = 1.0  # seconds to wait for a run: `runs list` holds it for an instant

# round and accuracy are those of the last row and of the last evaluation
QUERY = """SELECT *,
    (SELECT max(round) FROM rows WHERE run = id) AS round,
    (SELECT accuracy FROM rows WHERE run = id AND accuracy IS NOT NULL
     ORDER BY round DESC LIMIT 1) AS accuracy
    FROM runs"""


class Records(Shown, list[dict[str, Any]]):
    """The rows of a run, as `Row.record` made them."""


@dataclass(frozen=True)
class Entry(Shown):
    """One run of the store; times are ISO 8601 in UTC."""

    id: str
    name: str
    created: str
    data: str
    partition: str
    algorithm: str
    rounds: int
    spec: dict[str, Any]  # `Run(**spec)` is the run
    fingerprint: dict[str, str]  # sha256 of the data set and of its split into clients
    environment: dict[str, Any]  # versions and device, as of the last start
    status: str  # running, finished, interrupted, diverged or failed
    message: str
    finished: str | None
    round: int
    accuracy: float | None

    @classmethod
    def of(cls, row: sqlite3.Row) -> Entry:
        """The entry in a row of QUERY."""
        fields = dict(row)
        for key in ("spec", "fingerprint", "environment"):
            fields[key] = json.loads(fields[key])
        return cls(**(fields | {"round": fields["round"] or 0}))

    @property
    def remedy(self) -> str:
        """What the run does before its first round, as `Run.remedy`."""
        share, warm_up = self.spec.get("share"), self.spec.get("warm_up")
        return remedy(share and Share(**share), warm_up and WarmUp(**warm_up), self.spec.get("start", ""))

    @property
    def over(self) -> bool:
        """There is nothing left to train."""
        return self.status in ("finished", "diverged")


def now() -> str:
    """The time as the store writes it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def checked_id(text: str) -> str:
    """An id or the beginning of one; nothing else ever becomes part of a path or a query."""
    if not re.fullmatch(r"[0-9a-f]{2,8}", text):
        raise FedskewError(f"run id {text!r} is not 2 to 8 of the characters 0-9a-f; the ids are in: fedskew runs list")
    return text


def checkpoint_name(round: int) -> str:
    """The file of a round's checkpoint, inside its run's folder."""
    return f"round-{round:06d}.safetensors"


def differences(old: dict[str, Any], new: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The keys in which two specs differ, dotted where they are nested, with both values."""
    found: dict[str, tuple[Any, Any]] = {}
    for key in [*old, *(k for k in new if k not in old)]:
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict) and a.get("kind") != b.get("kind"):
            found[key] = (a.get("kind"), b.get("kind"))  # two methods, whose other keys have nothing in common
        elif isinstance(a, dict) and isinstance(b, dict):
            found |= {f"{key}.{inner}": values for inner, values in differences(a, b).items()}
        elif a != b:
            found[key] = (a, b)
    return found
