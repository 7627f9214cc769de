"""`fedskew deploy`: its mistakes in one line, and a whole trial with TLS and keys."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from fedskew.cli import main
from fedskew.experiment import train
from fedskew.run import Run
from fedskew.store import Store


def refused(capsys, *args):
    with pytest.raises(SystemExit) as e:
        main(["deploy", *map(str, args)])
    assert e.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["local", "--nodes", 3, "--clients", 4], "--nodes 3, but the run has 4 clients"),
        (["local", "--nodes", 3, "--algorithm", "sgd"], "nothing to federate"),
        (["local", "--nodes", 3, "--partition", "nodes"], "a trial deals out a data set"),
        (["local", "--resume", "ab", "--rounds", 3], "--resume ab goes on with a stored run; drop --rounds"),
        (["local", "--resume", "ab"], "no run 'ab'"),
        (["local", "--nodes", 2, "--quorum", 2], "quorum = 2"),
        (["local", "--nodes", 0], "0 is not in the range"),
        (["local", "nowhere.toml"], "nowhere.toml"),
        (["init", "fed", "--partition", "nodes", "--divergence"], "divergence compares"),
        (["init", "fed", "--rounds", 0], "rounds = 0"),
    ],
)
def test_mistakes_are_said_in_a_line(args, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert says in refused(capsys, *args)
    assert not (tmp_path / "fed").exists()


def test_without_flower_it_says_what_to_install(tmp_path):
    script = "import sys; sys.modules['flwr'] = None; from fedskew.cli import main; main(sys.argv[1:])"
    for command in (["deploy", "local", "--nodes", "2"], ["deploy", "init", str(tmp_path / "fed")]):
        done = subprocess.run([sys.executable, "-c", script, *command], capture_output=True, text=True)
        assert done.returncode == 2
        assert done.stderr == "fedskew: Flower is not installed: pip install 'fedskew[flower]'\n"


def test_init_takes_the_options_of_train(tmp_path, capsys):
    config = tmp_path / "run.toml"
    config.write_text('partition = "nodes"\nlr = 0.01\nrounds = 7\n')
    for folder, given in (("fed", [str(config)]), ("again", ["--config", str(config)])):
        command = ["deploy", "init", str(tmp_path / folder), *given, "--nodes", "2", "--lr", "0.05"]
        with pytest.raises(SystemExit) as e:
            main([*command, "--host", "a.example", "--host", "b.example"])
        assert e.value.code == 0
        written = (tmp_path / folder / "federation" / "run.toml").read_text()
        assert Run.from_toml(written) == Run(partition="nodes", clients=2, lr=0.05, rounds=7)
    assert "a.example b.example" in (tmp_path / "fed" / "README.md").read_text()


def fedskew(tmp_path, *args):
    command = [sys.executable, "-m", "fedskew", "deploy", "local", *map(str, args)]
    return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.network
@pytest.mark.slow
def test_a_trial_with_tls_ends_bit_for_bit_like_the_simulation(tmp_path):
    """FedAvgM with shared data and warm-up; the last checkpoint holds the simulation's whole state."""
    spec = {"partition": "dirichlet:0.3", "examples": "200", "rounds": "2", "algorithm": "fedavgm:0.9"}
    spec |= {"share": "beta=0.2,alpha=0.5", "warm_up": "rounds=1"}
    args = [x for key, value in spec.items() for x in (f"--{key.replace('_', '-')}", value)]
    how = ["--nodes", 2, "--tls", "--engine", "loop", "--deadline", 200, "--json", "--logs", tmp_path / "logs"]
    started = fedskew(tmp_path, *args, *how)
    out, err = started.communicate(timeout=400)
    assert started.returncode == 0, err
    document = json.loads(out)
    assert document["status"] == "finished"
    expected = list(train(Run(**spec, clients=2), engine="loop", device="cpu"))
    for key in ("round", "accuracy", "loss", "emd", "clients", "examples"):
        assert [r[key] for r in document["rows"]] == [getattr(r, key) for r in expected]
    _, state = Store().state(document["id"])
    assert state.keys() == expected[-1].state.keys()
    for key, leaves in expected[-1].state.items():
        assert all(torch.equal(state[key][name], leaf) for name, leaf in leaves.items())
    assert not mentioning(str(tmp_path / "logs"))


def mentioning(text):
    """Processes with this in their environment, which a child has from its parent."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if text.encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


@pytest.mark.network
@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_survives_a_trial_that_is_stopped(number, tmp_path):
    started = fedskew(tmp_path, "--nodes", 2, "--rounds", 50, "--logs", tmp_path / "logs")
    end = time.monotonic() + 200
    while not (tmp_path / "logs" / "run.log").exists():  # nodes and the run are started
        assert started.poll() is None, started.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.1)
    assert mentioning(str(tmp_path / "logs"))
    os.kill(started.pid, number)
    _, err = started.communicate(timeout=60)
    end = time.monotonic() + 30
    while left := mentioning(str(tmp_path / "logs")):
        assert time.monotonic() < end, left
        time.sleep(0.1)
    if number == signal.SIGTERM:
        assert started.returncode == 143
        assert "go on with: fedskew deploy local --resume" in err
