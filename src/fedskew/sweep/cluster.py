"""Workers on a Ray cluster that is already there: actors, with rows and checkpoints streaming back to this process.

Ray decides on which machine an actor runs; nothing is written there. The data set travels once to each machine.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from contextlib import suppress
from typing import Any

from fedskew.data import datasets
from fedskew.errors import FedskewError
from fedskew.sweep import wire
from fedskew.sweep.inbox import Inbox
from fedskew.sweep.worker import Worker

BEHIND = 8  # messages that a worker may be ahead of us
LOOK = 2.0  # seconds for which the size of the cluster is believed


class Cluster:
    """As many workers as the cluster has room for, each with so many CPUs and GPUs of it."""

    def __init__(self, address: str, num_cpus: float = 1, num_gpus: float | None = None, device: str = "auto") -> None:
        self.ray = _connected(address)
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        if num_gpus is None:
            num_gpus = 1 if device != "cpu" and any(node.get("GPU", 0) >= 1 for node in nodes) else 0
        self.needs = {"CPU": num_cpus, "GPU": num_gpus}
        self.threads = None if num_gpus else max(1, int(num_cpus))
        self.device = "cpu" if device == "auto" and not num_gpus else device
        self.seen = 0.0
        self.inbox = Inbox()
        self.hired: list[Actor] = []
        self.data: dict[str, Any] = {}  # by name: where Ray keeps it
        if not self.size:
            self.close()
            asked = f"{num_cpus:g} CPUs and {num_gpus:g} GPUs"
            raise FedskewError(f"no node of the Ray cluster has {asked}; lower --num-cpus or --num-gpus")
        self.actor = self.ray.remote(Worker).options(
            num_cpus=num_cpus, num_gpus=num_gpus, max_concurrency=2, max_restarts=0
        )

    @property
    def size(self) -> int:
        """Workers that all nodes have room for; nodes may come and go."""
        if time.monotonic() - self.seen > LOOK:
            nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
            needs = {kind: number for kind, number in self.needs.items() if number}
            self.room = sum(min(int(node.get(kind, 0) / number) for kind, number in needs.items()) for node in nodes)
            self.seen = time.monotonic()
        return self.room

    def hire(self, busy: int) -> Actor | None:
        """An actor, if there is room for one more."""
        if busy >= self.size:
            return None
        self.hired.append(Actor(self))
        return self.hired[-1]

    def close(self) -> None:
        """End our actors and leave the cluster, which stays."""
        while self.hired:
            self.hired.pop().kill()
        self.ray.shutdown()

    def stored(self, name: str) -> Any:
        """A data set in Ray's store, put there once."""
        if name not in self.data:
            self.data[name] = self.ray.put(datasets.load(name))
        return self.data[name]


class Actor:
    """One worker somewhere in the cluster; a thread of ours reads what it says."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.actor = cluster.actor.remote()
        self.heard, self.hearing = 0, threading.Condition()

    def give(self, job: wire.Job) -> None:
        """Begin a job."""
        train = self.actor.train.options(num_returns="streaming", _generator_backpressure_num_objects=BEHIND)
        said = train.remote(job.packed(), self.cluster.stored(job.runs[0].data))

        def read() -> None:
            for message in said:
                self._tell(self.cluster.ray.get(message))
                with self.hearing:
                    self.heard += 1
                    self.hearing.notify()

        self._watch(read)

    def halt(self) -> None:
        """Ask it for what would be lost, then end it."""

        def ask() -> None:
            told, rest = self.cluster.ray.get(self.actor.halt.remote())
            with self.hearing:  # rows travel on their own, and may come later
                self.hearing.wait_for(lambda: self.heard >= told)
            for message in rest:
                self._tell(message)
            self._tell("halted")

        self._watch(ask)

    def kill(self) -> None:
        """End it now."""
        with suppress(Exception):  # a cluster that is gone needs no killing
            self.cluster.ray.kill(self.actor)

    def _tell(self, said: bytes | str) -> None:
        self.cluster.inbox.put((self, said))

    def _watch(self, work: Any) -> None:
        def watched() -> None:
            try:
                work()
            except Exception as e:  # a worker, a node or the cluster is gone
                self._tell(f"its worker ended: {_reason(e)}")

        threading.Thread(target=watched, daemon=True).start()


def _connected(address: str) -> Any:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what Ray would warn of; we name the device
    try:
        import ray
    except ImportError:
        raise FedskewError("--on ray needs Ray: pip install 'fedskew[cluster]'") from None
    remedy = "start one with `ray start --head`, or give --address host:port"
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit():  # Ray itself would knock for a minute
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError as e:
            raise FedskewError(f"no Ray cluster at {address} ({e.strerror or e}); {remedy}") from None
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as e:
        raise FedskewError(f"no Ray cluster at {address} ({' '.join(str(e).split())}); {remedy}") from None
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)  # Ray's own would end us without a checkpoint
    return ray


def _reason(e: Exception) -> str:
    """The line of Ray's many that says why."""
    lines = [line.strip() for line in str(e).splitlines() if line.strip()] or [type(e).__name__]
    return next((line for line in lines if line.startswith("The actor is dead because")), lines[-1])
