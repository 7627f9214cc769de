"""A sweep on a real Ray cluster of two nodes on loopback: the same bits, and on again after a kill and a signal."""

import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

import pytest

import fedskew
from contents import contents, untimed
from fedskew import Store, grid
from stopped import ENDLESS, further

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray: pip install 'fedskew[cluster]'"),
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc"),
]

HEAD, OTHER = "127.0.0.2", "127.0.0.3"  # Ray tells nodes apart by their address, and all of 127 is loopback
BASE = """
[base]
model = "softmax"
examples = 300
lr = 0.3
clients = 5
partition = "classes:2"
"""
ENVIRONMENT = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(Path(fedskew.__file__).parents[1])}


class Node:
    """`ray start --block`: all processes of the node end with it."""

    def __init__(self, folder, *args):
        self.log = Path(folder) / f"{len(list(Path(folder).glob('*.log')))}.log"
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus", "1"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, "--object-store-memory", "80000000", *args], stdout=log, stderr=log, env=ENVIRONMENT
            )

    def wait(self):
        deadline = time.monotonic() + 60
        while "Ray runtime started" not in self.log.read_text():
            assert time.monotonic() < deadline, self.log.read_text()
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)

    def end(self):
        self.process.terminate()
        self.process.wait(30)


@pytest.fixture(scope="module")
def cluster():
    """The address of a cluster with a CPU on each of two nodes."""
    with socket.socket() as free:
        try:
            free.bind((OTHER, 0))
        except OSError:
            pytest.skip(f"{OTHER} is not an address of this machine")
        port = free.getsockname()[1]
    folder = tempfile.mkdtemp(prefix="ray")  # a short name: Ray's sockets have room for a hundred letters
    address = f"{HEAD}:{port}"
    nodes = []
    try:
        where = ["--head", "--port", str(port), "--node-ip-address", HEAD, "--temp-dir", folder]
        nodes.append(Node(folder, *where, "--include-dashboard=false", "--disable-usage-stats"))
        nodes[0].wait()
        nodes.append(Node(folder, "--address", address, "--node-ip-address", OTHER))
        nodes[1].wait()
        yield address
    finally:
        for node in reversed(nodes):
            node.end()
        left = processes_with(folder)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
    assert not left


def processes_with(word):
    """Whose command line has this word in it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if word in command and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


class Sweep:
    """`fedskew sweep --on ray` in a process of its own; a thread-less reader of its notes."""

    def __init__(self, path, address, *args):
        command = [sys.executable, "-m", "fedskew", "sweep", str(path), "--on", "ray", "--address", address, *args]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT | os.environ
        )
        self.said = ""

    def workers(self, wanted):
        """By the run that a worker began with next: its process."""
        found = {}
        while len(found) < wanted:
            line = self.process.stderr.readline()
            assert line, "the sweep ended"
            self.said += line
            found |= {id: int(pid) for id, pid in re.findall(r"run (\w+) in process (\d+) on", line)}
        return found

    def end(self):
        try:
            out, err = self.process.communicate(timeout=90)
        finally:
            self.process.kill()  # or it would keep its workers from the next
        return self.process.returncode, out, " ".join((self.said + err).split())

    def stop(self):
        """It says that it has stopped; what else it said."""
        self.process.send_signal(signal.SIGTERM)
        code, _, err = self.end()
        assert code == 128 + signal.SIGTERM
        assert "stopped at 0 of" in err
        return err


def wait_for(id, rounds):
    deadline = time.monotonic() + 60
    while Store().find(id).round < rounds:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def file(tmp_path):
    """Writes a grid and reads it, too."""

    def write(rest):
        path = tmp_path / "grid.toml"
        path.write_text(BASE + rest)
        return path, grid.parse(tomllib.loads(path.read_text()))

    return write


def test_on_after_a_signal_and_a_killed_worker(cluster, file, tmp_path):
    path, runs = file(f'rounds = {ENDLESS}\n[grid]\nalgorithm = ["fedavg", "scaffold"]\n')
    sweep = Sweep(path, cluster, "--together", "1", "--checkpoint-seconds", "1000")
    workers = sweep.workers(2)  # a node has room for one of them, so both nodes train
    for id in workers:
        wait_for(id, 5)
    sweep.stop()
    reached = {id: Store().find(id).round for id in workers}
    assert {Store().find(id).status for id in reached} == {"interrupted"}
    assert {id: Store().state(id)[0] for id in reached} == reached  # although no checkpoint was due
    assert not set(workers.values()) & set(processes_with("ray::"))

    sweep = Sweep(path, cluster, "--together", "1", "--checkpoint-seconds", "0.1")
    workers = sweep.workers(2)
    killed = next(iter(workers))
    wait_for(killed, reached[killed] + 5)
    told = Store().records(killed)
    os.kill(workers[killed], signal.SIGKILL)
    assert list(sweep.workers(1)) == [killed]
    wait_for(killed, len(told) + 5)
    assert re.search(rf"run {killed}: its worker ended: .*; try 2 of 3", sweep.stop())
    assert untimed(told) == untimed(Store().records(killed))[: len(told)]
    found, expected = further(Store(), runs, Store(tmp_path / "here"))
    assert found == expected


def test_the_same_bits_at_the_end(cluster, file, tmp_path):
    more = '[[runs]]\nbatch = 20\nshare = "beta=0.2,alpha=0.5"\n'
    path, runs = file(f'rounds = 20\neval_every = 7\n[grid]\nalgorithm = ["fedavg", "scaffold"]\n{more}')
    code, out, err = Sweep(path, cluster, "--together", "1", "--json").end()
    assert code == 0, err
    assert json.loads(out)["failed"] == []
    here = Store(tmp_path / "here")
    for run in runs:
        list(here.advance(here.create(run)))
    assert contents(Store(), runs) == contents(here, runs)


LATE = """
import sys, time
from fedskew import Run, Store, sweep
from fedskew.sweep import wire
from fedskew.sweep.agenda import Trained
from fedskew.sweep.cluster import Actor, Cluster
from fedskew.sweep.conduct import abroad

told = Actor._tell

def slowly(actor, said):  # rows on their way, not those that a halted worker tells with their state
    if not isinstance(said, str) and (parsed := wire.parse(said))[0].get("row") and parsed[1] == [b""]:
        time.sleep(0.1)
    told(actor, said)

Actor._tell = slowly
store = Store()
run = Run(model="softmax", examples=300, lr=0.3, clients=5, partition="classes:2", rounds=int(sys.argv[2]))
_, groups = sweep.plan(store, [run])
events = abroad(store, groups, Cluster(sys.argv[1], device="cpu"), checkpoint_seconds=1000)
for event in events:
    if isinstance(event, Trained) and event.row.round == 3:
        break
events.close()
"""


def test_rows_that_come_late_are_kept_before_the_last(cluster):
    """A halted worker's last words travel beside the rows before them, and may overtake these."""
    subprocess.run(
        [sys.executable, "-c", LATE, cluster, str(ENDLESS)], check=True, env=ENVIRONMENT | os.environ, timeout=90
    )
    (entry,) = Store().runs()
    assert entry.status == "interrupted"
    assert entry.round > 3
    assert Store().state(entry.id)[0] == entry.round
    assert [row["round"] for row in Store().records(entry.id)] == list(range(1, entry.round + 1))


def test_what_no_node_has_is_said(cluster, file):
    sweep = Sweep(file("")[0], cluster, "--num-cpus", "2")
    code, out, err = sweep.end()
    assert (code, out) == (2, "")
    assert err == "fedskew: no node of the Ray cluster has 2 CPUs and 0 GPUs; lower --num-cpus or --num-gpus"
    assert Store().runs() == []
