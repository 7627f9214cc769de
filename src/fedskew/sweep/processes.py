"""Workers on this machine: processes, each on a GPU of its own or with its share of the CPU's threads."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import torch

from fedskew.sweep import wire
from fedskew.sweep.inbox import Inbox
from fedskew.sweep.worker import HALT


def cores() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpus(device: str) -> list[str]:
    """The GPUs to share out, as CUDA_VISIBLE_DEVICES names them; none where one device, or the CPU, is asked for."""
    if device not in ("auto", "cuda") or not torch.cuda.is_available():
        return []
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return visible.split(",")
    return [str(i) for i in range(torch.cuda.device_count())]


class Processes:
    """So many workers at the most; by default one a GPU, or one a core."""

    def __init__(self, device: str = "auto", workers: int | None = None) -> None:
        self.device, self.gpus = device, gpus(device)
        self.size = workers or len(self.gpus) or (cores() if device in ("auto", "cpu") else 1)
        self.threads = None if self.gpus else max(1, cores() // self.size)
        self.inbox = Inbox()
        self.hired: dict[int, Process] = {}

    def hire(self, busy: int) -> Process | None:
        """A process in the first place that is free."""
        free = [place for place in range(self.size) if place not in self.hired or self.hired[place].gone]
        if busy >= self.size or not free:
            return None
        if free[0] in self.hired:
            self.hired[free[0]].kill()  # dead already; this lets go of its pipes
        visible = {"CUDA_VISIBLE_DEVICES": self.gpus[free[0] % len(self.gpus)]} if self.gpus else {}
        self.hired[free[0]] = Process(self.inbox, visible)
        return self.hired[free[0]]

    def close(self) -> None:
        """Kill what is left and wait until it is gone."""
        for process in self.hired.values():
            process.kill()
        while any(process.reader.is_alive() for process in self.hired.values()):
            with suppress(queue.Empty):  # which a reader may wait to fill
                self.inbox.get(timeout=0.01)
        self.hired.clear()


class Process:
    """One worker process; a thread of ours reads what it says."""

    def __init__(self, inbox: Inbox, environment: dict[str, str]) -> None:
        self.inbox = inbox
        self.child = subprocess.Popen(
            [sys.executable, "-m", "fedskew.sweep.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | environment,
            process_group=None if os.name == "nt" else 0,  # Ctrl-C at the terminal is for the sweep, which halts them
        )
        self.sending = threading.Lock()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    @property
    def gone(self) -> bool:
        """The process has ended."""
        return self.child.poll() is not None

    def give(self, job: wire.Job) -> None:
        """Begin a job."""
        self._send(job.packed())

    def halt(self) -> None:
        """Ask it to tell what would be lost, and to end."""
        self._send(HALT)

    def kill(self) -> None:
        """End it now."""
        self.child.kill()
        self.child.wait()
        assert self.child.stdin is not None
        with self.sending, suppress(OSError):  # what could not be sent
            self.child.stdin.close()

    def _send(self, data: bytes) -> None:
        """From a thread: a pipe takes only so much before the other side, still starting, reads it."""

        def work() -> None:
            assert self.child.stdin is not None
            with self.sending, suppress(OSError):  # that it is gone is seen by the reader
                wire.send(self.child.stdin, data)

        threading.Thread(target=work, daemon=True).start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        with self.child.stdout as pipe:
            while (said := wire.receive(pipe)) is not None:
                self.inbox.put((self, said))
        code = self.child.wait()
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        self.inbox.put((self, f"its worker, process {self.child.pid}, ended: {how}"))
