"""Nothing that was started outlives what started it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from fedskew.errors import FedskewError
from fedskew.flower.processes import Link, Processes, free_port

FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
PARENT = """
import sys, time
from pathlib import Path
from fedskew.flower.processes import Processes
with Processes(Path(sys.argv[1])) as programs:
    print(programs.start("family", [sys.executable, "-c", sys.argv[2]]).pid, flush=True)
    while not programs.log("family").read_text().strip():
        time.sleep(0.02)
    print(programs.log("family").read_text(), flush=True)
    time.sleep(600)
"""


def gone(pid):
    """Not there, or a zombie that nobody has buried yet."""
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def until(true, seconds=30.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_leaving_the_block_ends_a_program_and_what_it_started(tmp_path):
    with Processes(tmp_path) as programs:
        parent = programs.start("family", [sys.executable, "-c", FAMILY])
        until(lambda: programs.log("family").read_text().strip())
        child = int(programs.log("family").read_text())
        assert not gone(child)
    assert parent.poll() is not None
    until(lambda: gone(child))


def test_one_that_does_not_listen_is_killed(tmp_path, monkeypatch):
    from fedskew.flower import processes

    monkeypatch.setattr(processes, "GRACE", 0.2)
    with Processes(tmp_path) as programs:
        stubborn = programs.start("stubborn", [sys.executable, "-c", STUBBORN])
        until(lambda: "up" in programs.log("stubborn").read_text())
    assert stubborn.returncode == -signal.SIGKILL


def test_a_killed_parent_takes_its_programs_and_their_children_with_it(tmp_path):
    command = [sys.executable, "-c", PARENT, str(tmp_path), FAMILY]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    program, child = int(parent.stdout.readline()), int(parent.stdout.readline())
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    until(lambda: gone(program) and gone(child))


def test_a_superlink_that_cannot_start_says_why(tmp_path):
    link = Link(tmp_path, free_port())
    with Processes(tmp_path) as programs:
        programs.start("superlink", [sys.executable, "-c", "raise SystemExit('the port is taken')"])
        with pytest.raises(FedskewError, match="did not start: the port is taken"):
            programs.wait_for(link)
