"""How much of the machine is used by others: alternating with the loop does not make a ratio hold on a busy one.

Flower on the MNIST CNN, B=10, took 0.58 to 0.66 of the loop's time in one run beside others and 1.3 to 1.6 in the next.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

QUIET = 0.1  # of all cores


class Watch:
    """The share of the machine that processes outside these families have used since it was made."""

    def __init__(self, pids: Iterable[int]) -> None:
        self.pids = [*pids]
        self.began, self.busy, self.own = time.perf_counter(), _busy(), self._own()

    def others(self) -> float:
        """Time that the hypervisor gave away is others' too. Zero where there is no /proc."""
        ticks = (time.perf_counter() - self.began) * os.sysconf("SC_CLK_TCK") * (os.cpu_count() or 1)
        return max(0.0, (_busy() - self.busy - self._own() + self.own) / ticks)

    def _own(self) -> int:
        return sum(_ticks(pid) for root in self.pids for pid in family(root))


def wait(until: float) -> bool:
    """Wait for a quiet second, until then at most; whether there was any waiting."""
    waited = False
    while time.perf_counter() < until:
        watch = Watch([os.getpid()])
        time.sleep(1.0)
        if watch.others() <= QUIET:
            break
        waited = True
    return waited


def family(pid: int) -> list[int]:
    """A process and all that came of it."""
    children = [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in _read(task).split()]
    return [pid, *(one for child in children for one in family(child))]


def peak_kb(pid: int) -> int:
    """The most memory that it has had resident."""
    lines = _read(Path(f"/proc/{pid}/status")).splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def _busy() -> int:
    """Ticks of all cores: user, nice, system, interrupts and what was stolen."""
    line = _read(Path("/proc/stat")).split("\n", 1)[0].split()
    return sum(int(line[i]) for i in (1, 2, 3, 6, 7, 8)) if line else 0


def _ticks(pid: int) -> int:
    """What it used itself, and its children that have ended."""
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15])


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the process has ended, or this is no Linux
        return ""
