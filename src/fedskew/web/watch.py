"""The store, watched: read again when its files change, and told to every open page as server-sent events."""

from __future__ import annotations

import asyncio
import json
import math
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from fedskew.errors import FedskewError
from fedskew.store import Store, live
from fedskew.web.control import Control

EVERY = 0.4  # seconds between looks at the store's files
AT_MOST = 2.0  # a process that ends may change no file: while one trains, it is looked at so often at least
HEARTBEAT = 15.0  # seconds after which a quiet stream says that it lives

# A store that vanished or changed while it was read, or whose tables hold what no fedskew wrote.
BROKEN = (sqlite3.Error, OSError, ValueError, KeyError, TypeError, AttributeError)

Record = dict[str, Any]


@dataclass(frozen=True)
class View:
    """All runs at one moment, and what is wrong with the store if something is."""

    runs: dict[str, Record] = field(default_factory=dict)
    error: str | None = None
    there: bool = False
    ours: tuple[str, ...] = ()  # runs that this dashboard can stop
    failed: tuple[tuple[str, str], ...] = ()  # ... and those whose process ended badly, with its last words

    def told(self, folder: str) -> Record:
        """What a page shows beside the runs."""
        about = {"folder": folder, "there": self.there, "error": self.error}
        return about | {"ours": list(self.ours), "failed": dict(self.failed)}


def look(store: Store, control: Control | None, known: dict[str, Record]) -> View:
    """The runs now; a store that is missing is empty, and one that cannot be read says why, beside the runs known."""
    there, runs, error = store.path.exists(), known, None
    try:
        runs = {s.entry.id: summary(s) for s in live.standings(store)}
    except FedskewError as e:
        error = str(e)
    except BROKEN as e:
        error = f"{store.path}: it cannot be read ({e}); restore a copy or choose another folder"
    if control is None:
        return View(runs, error, there)
    return View(runs, error, there, tuple(control.ours()), tuple(control.failed().items()))


def summary(standing: live.Standing) -> Record:
    """A run as the table shows it."""
    e = standing.entry
    keys = ("id", "name", "status", "message", "data", "partition", "algorithm", "remedy", "round", "rounds", "created")
    return {key: getattr(e, key) for key in keys} | {
        "accuracy": finite(e.accuracy),
        "emd": finite(standing.emd),
        "seconds_left": finite(standing.seconds_left),
        "seed": e.spec.get("seed", 0),
    }


def finite(value: float | None) -> float | None:
    """The value where it is a number; JSON has neither NaN nor infinity."""
    return value if value is not None and math.isfinite(value) else None


class Watcher:
    """One reader of the store for all open pages; it rests while there is none."""

    def __init__(self, store: Store, control: Control | None = None) -> None:
        self.store = store
        self.control = control
        self.view = View()
        self.pages = 0
        self.ending: Callable[[], bool] = lambda: False  # the server waits for streams before it ends: they must, too
        self._starting = asyncio.Lock()
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    async def events(self) -> AsyncIterator[str]:
        """First everything, then whatever changes, as text/event-stream."""
        self.pages += 1
        try:
            async with self._starting:  # of two pages that come at once, one starts the watch
                if self._task is None or self._task.done():
                    stamp = live.stamp(self.store)  # before the look, so that nothing written meanwhile is missed
                    self.view = await asyncio.to_thread(look, self.store, self.control, {})
                    self._task = asyncio.create_task(self._watch(stamp))
            seen = self.view
            yield _event("runs", {"store": self._told(seen), "runs": list(seen.runs.values())})
            while not self._closing:
                try:
                    async with asyncio.timeout(HEARTBEAT), self._changed:
                        while self.view is seen and not self._closing:
                            await self._changed.wait()
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                before, seen = seen, self.view
                if difference := self._difference(before, seen):
                    yield _event("change", difference)
        finally:
            self.pages -= 1

    async def close(self) -> None:
        """End every stream."""
        async with self._changed:
            self._closing = True
            self._changed.notify_all()

    async def _watch(self, stamp: live.Stamp) -> None:
        looked = time.monotonic()
        while self.pages:
            await asyncio.sleep(EVERY)
            if self.ending():
                await self.close()
                return
            now = await asyncio.to_thread(live.stamp, self.store)
            alive = self.view.ours or any(r["status"] == "running" for r in self.view.runs.values())
            restless = alive or self.view.error  # what could not be read a moment ago may be whole now
            if now == stamp and not (restless and time.monotonic() - looked > AT_MOST):
                continue
            stamp, looked = now, time.monotonic()
            view = await asyncio.to_thread(look, self.store, self.control, self.view.runs)
            if view != self.view:
                async with self._changed:
                    self.view = view
                    self._changed.notify_all()

    def _difference(self, before: View, after: View) -> Record:
        told: Record = {}
        if changed := [run for id, run in after.runs.items() if before.runs.get(id) != run]:
            told["changed"] = changed
        if gone := [id for id in before.runs if id not in after.runs]:
            told["gone"] = gone
        if self._told(before) != self._told(after):
            told["store"] = self._told(after)
        return told

    def _told(self, view: View) -> Record:
        return view.told(str(self.store.folder))


def _event(name: str, data: Record) -> str:
    return f"event: {name}\ndata: {json.dumps(data, allow_nan=False)}\n\n"
