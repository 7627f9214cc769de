"""The far end of a sweep: trains a job and tells its rows. `python -m fedskew.sweep.worker` does so through pipes.

A worker writes nothing to a disk: the sweep that gave it the job is the one writer, so that a worker may be on any
machine, and killing it loses no row that it has told.
"""

from __future__ import annotations

import os
import platform
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator

import torch

from fedskew.data import datasets
from fedskew.data.dataset import Dataset
from fedskew.errors import FedskewError
from fedskew.experiment import train_together
from fedskew.rounds import Row
from fedskew.store import origin
from fedskew.store.hold import same_data
from fedskew.store.recording import Cadence
from fedskew.sweep import wire
from fedskew.sweep.wire import Job, frame, row_frame

HALT = b"halt"


class Work:
    """One job under way."""

    def __init__(self, job: Job, data: Dataset) -> None:
        self.job, self.data = job, data
        self.untold: dict[int, Row] = {}  # the last row of every run whose state was not told since its checkpoint

    def messages(self) -> Iterator[bytes]:
        """Where it is trained, its rows, and how it ended: done, or why not."""
        try:
            if self.job.threads:
                torch.set_num_threads(self.job.threads)  # holds for this thread and for those that start later
            for id, run, then, at in zip(
                self.job.ids, self.job.runs, self.job.prints, self.job.beginnings, strict=True
            ):
                same_data(id, run, then, origin.fingerprint(run, self.data, at.initial))
            where = f"process {os.getpid()} on {platform.node()}"
            yield frame({"place": origin.environment(self.job.how), "where": where})
            yield from self._rows()
            yield frame({"done": True})
        except FedskewError as e:
            yield frame({"failed": str(e), "mistake": True})
        except Exception as e:
            why = f"{type(e).__name__}: {e}".splitlines()[0]
            yield frame({"failed": why, "mistake": False, "traceback": traceback.format_exc()})

    def _rows(self) -> Iterator[bytes]:
        runs = self.job.runs
        cadences = [Cadence(self.job.checkpoint_seconds, len(runs)) for _ in runs]
        for i, row in train_together(runs, data=self.data, **vars(self.job.how), beginnings=self.job.beginnings):
            began = time.monotonic()
            due = not row.diverged and (row.round == runs[i].rounds or cadences[i].due())
            if not row.diverged:
                self.untold[i] = row
            yield row_frame(i, row, state=due)
            if due or row.diverged:
                self.untold.pop(i, None)
                cadences[i].saved(began)

    def rest(self) -> list[bytes]:
        """What would be lost if the work ended now: each run's last row with its state."""
        return [row_frame(i, row, state=True) for i, row in list(self.untold.items())]


class Worker:
    """Takes one job after another. A Ray actor is one of these; `halt` comes from another thread."""

    def __init__(self) -> None:
        self.work: Work | None = None
        self.loaded: tuple[str, Dataset] | None = None
        self.told = 0  # messages
        self.halted = False

    def train(self, job: bytes, data: Dataset | None = None) -> Iterator[bytes]:
        """The messages of a job; without `data` it is loaded here."""
        for message in self._messages(job, data):
            if self.halted:  # the row is among what `halt` tells, or comes after it and is trained again
                return
            self.told += 1
            yield message
        self.work = None

    def halt(self) -> tuple[int, list[bytes]]:
        """Tell nothing more, but what would be lost; it comes after all messages before, so many."""
        self.halted = True
        rest = self.work.rest() if self.work else []
        return self.told, rest  # counted last: a row may have been told meanwhile, and `rest` may lie beyond it

    def _messages(self, job: bytes, data: Dataset | None) -> Iterator[bytes]:
        try:
            taken = Job.unpacked(job)  # refused where this is another fedskew, with other keys
            found = self._data(taken.runs[0].data) if data is None else data
        except FedskewError as e:
            yield frame({"failed": str(e), "mistake": True})
            return
        self.work = Work(taken, found)
        yield from self.work.messages()

    def _data(self, name: str) -> Dataset:
        if self.loaded is None or self.loaded[0] != name:
            self.loaded = name, datasets.load(name)
        return self.loaded[1]


def main() -> None:
    """Jobs come in frames on standard input and messages leave on standard output; the end of input ends it all."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    inbox, outbox = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a network or a library prints goes to standard error
    jobs: queue.Queue[bytes] = queue.Queue()
    writing = threading.Lock()
    worker = Worker()

    def listen() -> None:
        while (said := wire.receive(inbox)) is not None:
            if said == HALT:
                stop.set()
                return
            jobs.put(said)
        os._exit(1)  # the sweep is gone, and nobody is left to tell a row to

    def leave() -> None:
        stop.wait()
        try:
            with writing:
                _, rest = worker.halt()
                for message in rest:
                    wire.send(outbox, message)
        finally:
            os._exit(0)

    for role in (listen, leave):
        threading.Thread(target=role, daemon=True).start()
    while True:
        try:
            for message in worker.train(jobs.get()):
                with writing:
                    wire.send(outbox, message)
        except BrokenPipeError:
            os._exit(1)


if __name__ == "__main__":
    main()
