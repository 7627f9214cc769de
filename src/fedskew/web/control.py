"""Start, stop and resume runs from the page: each a `fedskew` process, stopped by SIGTERM, which checkpoints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel, ConfigDict, Field

from fedskew.data.sources import SOURCES
from fedskew.errors import FedskewError
from fedskew.store import Store
from fedskew.store.entry import checked_id

AT_ONCE = 4  # processes; more would only wait for each other on one machine
FINE = (None, 0, 143, -15)  # it runs, it ended, it was stopped
PATIENCE = 20.0  # seconds for a run to write its checkpoint when the dashboard ends


class Wanted(BaseModel):
    """What the page may ask for; a network or a split by its path may not, since that would run or read any file."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field("", max_length=200)
    data: str = "digits"
    partition: str = Field("iid", max_length=200)
    clients: int | None = Field(None, ge=1)
    algorithm: str = Field("fedavg", max_length=200)
    share: str = Field("", max_length=200)
    warm_up: str = Field("", max_length=200)
    model: str = "auto"
    rounds: int = Field(50, ge=1)
    epochs: int = Field(1, ge=1)
    batch: int = Field(10, ge=1)
    lr: float = Field(0.1, gt=0)
    seed: int = Field(0, ge=0)
    divergence: bool = False

    def arguments(self) -> list[str]:
        """Those of `fedskew train`; a value is joined to its name, so that none is read as another option."""
        if self.data not in SOURCES:
            raise FedskewError(f"data set {self.data!r} is not known: choose one of {', '.join(SOURCES)}")
        if self.partition.strip().startswith("file"):
            raise FedskewError("partition file:PATH reads a file; start that run with fedskew train")
        if not re.fullmatch(r"[a-z0-9-]+", self.model):
            raise FedskewError(
                f"model {self.model!r} is not a plain name; start a network of your own with fedskew train"
            )
        given = self.model_dump(exclude_defaults=True)
        found = ["--divergence"] if given.pop("divergence", False) else []
        return found + [f"--{key.replace('_', '-')}={value}" for key, value in given.items()]


@dataclass
class Job:
    """A process that was started here, and the run that it trains once it has said so."""

    process: subprocess.Popen[bytes]
    said: IO[bytes]  # its standard error
    run: str = ""

    def words(self) -> str:
        """What it said on standard error."""
        self.said.flush()
        return Path(self.said.name).read_text(encoding="utf-8", errors="replace")


class Control:
    """The processes of this dashboard."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.jobs: list[Job] = []
        self._lock = threading.Lock()
        self._folder = tempfile.TemporaryDirectory(prefix="fedskew-ui-")

    def start(self, wanted: Wanted) -> str:
        """Train a new run; gives its id as soon as it is written down, or says why it cannot be."""
        job = self._spawn(["train", *wanted.arguments()])
        until = time.monotonic() + 60
        while time.monotonic() < until:
            ended = job.process.poll() is not None
            if found := re.search(r"^run ([0-9a-f]{8})$", job.words(), re.MULTILINE):
                job.run = found[1]
                return job.run
            if ended:
                raise FedskewError(_last_line(job.words()) or "the run ended before it began")
            time.sleep(0.05)
        job.process.terminate()
        raise FedskewError("the run was not written down within a minute; see whether the machine is busy")

    def resume(self, id: str) -> str:
        """Go on with a run that was interrupted or failed."""
        entry = self.store.find(id)
        if entry.status == "running" or entry.over:
            raise FedskewError(f"run {entry.id} is {entry.status}; only one that stopped can go on")
        self._spawn(["resume", entry.id]).run = entry.id
        return entry.id

    def stop(self, id: str) -> str:
        """Ask a run that was started here to end: it saves its round and can be resumed."""
        id = checked_id(id)
        if not (found := [job for job in self.jobs if job.run == id and job.process.poll() is None]):
            raise FedskewError(f"run {id} was not started from this page; stop it where it was started")
        found[0].process.terminate()
        return id

    def ours(self) -> list[str]:
        """The runs that can be stopped here."""
        return [job.run for job in self.jobs if job.run and job.process.poll() is None]

    def failed(self) -> dict[str, str]:
        """Runs whose last process ended with an error, and its last words."""
        last = {job.run: job for job in self.jobs if job.run}
        words = {run: _last_line(job.words()) for run, job in last.items() if job.process.poll() not in FINE}
        return {run: line for run, line in words.items() if line != f"run {run}"}  # one that diverged says no more

    def close(self) -> None:
        """Stop everything that was started here and wait until it is saved."""
        live = [job.process for job in self.jobs if job.process.poll() is None]
        for process in live:
            process.terminate()
        until = time.monotonic() + PATIENCE
        for process in live:
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
        for job in self.jobs:
            job.said.close()
        self._folder.cleanup()

    def _spawn(self, arguments: list[str]) -> Job:
        with self._lock:
            if sum(job.process.poll() is None for job in self.jobs) >= AT_ONCE:
                raise FedskewError(f"{AT_ONCE} runs are training already; stop one or wait")
            said = (Path(self._folder.name) / f"{len(self.jobs)}.txt").open("wb")
            environment: dict[str, Any] = {**os.environ, "FEDSKEW_STORE": str(self.store.folder), "NO_COLOR": "1"}
            process = subprocess.Popen(
                [sys.executable, "-m", "fedskew", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,  # Ctrl-C at the dashboard's terminal is ours to pass on
            )
            self.jobs.append(Job(process, said))
            return self.jobs[-1]


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("fedskew: ") if lines else ""
