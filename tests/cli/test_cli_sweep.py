"""`fedskew sweep` as a user meets it: a file, two streams, signals and an exit status."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib

import pytest

from fedskew import Store, grid
from stopped import ENDLESS, further

SMALL = 'model = "softmax"\nexamples = 300\nlr = 0.3\nclients = 5\n'


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "grid.toml"
        path.write_text(text)
        return path

    return write


def test_a_plan_then_a_table_then_nothing_twice(fedskew, file, monkeypatch):
    monkeypatch.setattr("fedskew.cli.progress.LINES", 0)
    path = file(
        f'[base]\n{SMALL}rounds = 2\n[grid]\npartition = ["iid", "classes:1"]\nseed = [0, 1]\n[[runs]]\nbatch = 20\n'
    )
    code, out, err = fedskew("sweep", path, "--dry-run", "--json")
    plan = json.loads(out)
    assert code == 0
    assert plan.pop("seconds") > 0
    assert plan == {"runs": 5, "finished": 0, "groups": [4, 1], "hands": 1, "rounds": 10}
    assert "5 runs, 0 of them finished already\n5 runs train in 2 groups of 1 to 4: 10 rounds, about" in err
    assert Store().runs() == []
    code, out, err = fedskew("sweep", path)
    assert code == 0
    assert "\n0 of 5 runs, 1 of 10 rounds\n" in err
    assert re.search(r"0 of 5 runs, 2 of 10 rounds, about \d+ s left", err)
    assert "5 of 5 runs, 10 of 10 rounds\n" in err
    assert re.search(r"classes:1 +10 +\d+\.\d% +\d+\.\d% +2 +1\.60", out)
    code, out, err = fedskew("sweep", path, "--json")
    document = json.loads(out)
    assert "5 runs, 5 of them finished already" in err
    assert [(c["partition"], c["batch"], c["seeds"]) for c in document["cells"]] == [
        ("iid", 10, 2),
        ("classes:1", 10, 2),
        ("iid", 20, 1),
    ]
    assert (document["failed"], len(document["runs"]), len(Store().runs())) == ([], 5, 5)
    assert {run["status"] for run in document["runs"]} == {"finished"}


def test_help_has_an_example_and_keeps_what_is_in_brackets(fedskew):
    said = " ".join(fedskew("sweep", "--help")[1].replace("│", " ").split())
    assert "Example: fedskew sweep grid.toml" in said
    for words in ("[here]", "[one a GPU, else one a core]", "[2]", "[FEDSKEW_STORE, else ./runs]"):
        assert words in said


def test_another_store(fedskew, file, tmp_path):
    path = file(f"[base]\n{SMALL}rounds = 1\n")
    code, out, _ = fedskew("sweep", path, "--store", tmp_path / "other")
    assert code == 0
    assert re.search(r"iid +fedavg +\d+\.\d%", out)
    assert [entry.status for entry in Store(tmp_path / "other").runs()] == ["finished"]
    assert Store().runs() == []


@pytest.mark.parametrize(
    ("text", "args", "says"),
    [
        ("[grid]\nlr = [0.1, -1]", [], "fedskew: run: lr = -1: it should be greater than 0"),
        ("[grid]\nlrr = [0.1]", [], "unknown key 'lrr'"),
        ("[grid]\ncohort = [5, 11]", [], "cohort = 11, but there are only 10 clients; lower it"),
        ("[grid]\nlr = [0.1", [], "is not valid TOML"),
        ("", ["--on", "clouds"], "'clouds' is not one of"),
        ("", ["--address", "127.0.0.1:1"], "--address 127.0.0.1:1 is a Ray cluster's: add --on ray"),
        ("", ["--on", "ray", "--address", "127.0.0.1:1"], "no Ray cluster at 127.0.0.1:1"),
        ("", ["--engine", "steam"], "choose one of auto, stacked, threaded, loop"),
        ("", ["--device", "cpu", "--engine", "stacked", "--precision", "bf16"], "on cpu needs the engine threaded"),
        ("", ["--retries", "-1"], "-1 is not in the range"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2_before_anything_starts(fedskew, file, text, args, says):
    code, out, err = fedskew("sweep", file(text), *args)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("fedskew: ")
    assert says in line
    assert Store().runs() == []


def test_no_file_and_no_ray(fedskew, file, monkeypatch):
    assert "give a TOML file" in fedskew("sweep", "nowhere.toml")[2]
    monkeypatch.setitem(sys.modules, "ray", None)
    code, _, err = fedskew("sweep", file(""), "--on", "ray")
    assert (code, err) == (2, "fedskew: --on ray needs Ray: pip install 'fedskew[cluster]'\n")


def test_the_exit_status_says_that_a_run_failed(fedskew, file, tmp_path, monkeypatch):
    (tmp_path / "sulky.py").write_text(
        "from torch import nn\n\n\n"
        "class Net(nn.Module):\n"
        "    def __init__(self, shape, classes):\n"
        "        super().__init__()\n"
        "        self.linear = nn.Linear(64, classes)\n\n"
        "    def forward(self, x):\n"
        "        if self.training:\n"
        "            raise OSError('not today')\n"
        "        return self.linear(x.flatten(1))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    path = file(f'[base]\n{SMALL}rounds = 1\n[[runs]]\nmodel = "sulky:Net"\n[[runs]]\n')
    code, out, err = fedskew("sweep", path, "--retries", "1", "--json")
    assert code == 1
    document = json.loads(out)
    broken, good = document["runs"]
    assert document["failed"] == [broken["id"]]
    assert (broken["status"], good["status"]) == ("failed", "finished")
    assert "not today" in broken["message"]
    assert [cell["unfinished"] for cell in document["cells"]] == [1, 0]
    assert re.search(r"not today; try 2 of 2\n.*not today; given up\n", err)
    assert document["plan"]["seconds"] is None


class Started:
    """A sweep in a process of its own, with its workers' ids."""

    def __init__(self, path, *args):
        command = [sys.executable, "-m", "fedskew", "sweep", str(path), "--on", "processes", *args]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def until(self, runs, rounds, workers=2):
        """The workers, once every run has come so far."""
        pids = set()
        while len(pids) < workers:
            line = self.process.stderr.readline()
            assert line, "the sweep ended"
            pids |= {int(pid) for pid in re.findall(r"in process (\d+) on", line)}
        deadline = time.monotonic() + 60
        while any(entry is None or entry.round < rounds for entry in Store().alike(runs)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return pids

    def end(self, number):
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=30)
        return self.process.returncode, err


def gone(pids, seconds=10):
    deadline = time.monotonic() + seconds
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):  # noqa: PTH110
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.skipif(not os.path.exists("/proc/self"), reason="looks for processes in /proc")  # noqa: PTH110
@pytest.mark.slow
def test_ended_by_a_signal_and_by_force_it_goes_on_and_leaves_nobody(file, tmp_path):
    path = file(
        f'[base]\n{SMALL}rounds = {ENDLESS}\npartition = "classes:2"\neval_every = 100\n[grid]\nseed = [0, 1]\n'
    )
    runs = grid.parse(tomllib.loads(path.read_text()))
    sweep = Started(path, "--checkpoint-seconds", "1000")
    pids = sweep.until(runs, 5)
    code, err = sweep.end(signal.SIGTERM)
    assert code == 128 + signal.SIGTERM
    assert re.search(r"stopped at 0 of 2 runs, .* left; the same command goes on", " ".join(err.split()))
    assert gone(pids, 0)
    stopped = Store().alike(runs)
    for entry in stopped:
        assert (entry.status, Store().state(entry.id)[0]) == ("interrupted", entry.round)
    sweep = Started(path, "--checkpoint-seconds", "0.1", "--workers", "1")
    pids = sweep.until(runs, max(entry.round for entry in stopped) + 5, workers=1)
    sweep.end(signal.SIGKILL)
    assert gone(pids)  # nobody is left to hear them, so they end
    found, expected = further(Store(), runs, Store(tmp_path / "whole"))
    assert found == expected
