"""`fedskew train` as a user meets it: a process, its two streams and its exit status."""

import json
import subprocess
import sys

import numpy as np
import pytest

from fedskew.cli import main

SMALL = ["--model", "softmax", "--rounds", "2", "--lr", "0.5"]


def fedskew(*args, **more):
    return subprocess.run([sys.executable, "-m", "fedskew", *args], capture_output=True, text=True, **more)


def test_flags_config_and_json(tmp_path):
    config = tmp_path / "run.toml"
    config.write_text('partition = "classes:2"\nclients = 5\nrounds = 9\nmodel = "softmax"\n')
    done = fedskew("train", "--config", str(config), "--rounds", "2", "--batch", "full", "--divergence", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["status"] == "finished"
    assert document["run"]["partition"] == {"kind": "classes", "n": 2, "clients": 5, "keep": False}
    assert (document["run"]["rounds"], document["run"]["batch"], document["run"]["divergence"]) == (2, None, True)
    assert [row["round"] for row in document["rows"]] == [1, 2]
    assert document["rows"][-1]["divergence"]["relative"]["total"] > 0
    assert document["accuracy"] == document["rows"][-1]["accuracy"]
    listed = json.loads(fedskew("runs", "list", "--json").stdout)
    assert [run["id"] for run in listed] == [document["id"]]


def test_without_json_it_is_a_sentence():
    done = fedskew("train", *SMALL)
    assert done.returncode == 0, done.stderr
    assert "finished after round 2 of 2, accuracy" in done.stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--lr", "-1"], "lr = -1.0: it should be greater than 0"),
        (["--lr", "much"], "'much' is not a valid float"),
        (["--partition", "emd:1.95"], "emd:1.95 cannot be reached with 10 classes: the largest is 1.8; lower it"),
        (["--partition", "nonsense:3"], "choose one of iid, classes"),
        (["--clients", "5000"], "5000"),
        (["--batch", "some"], "batch = 'some'"),
        (["--config", "no-such-file.toml"], "give a TOML file"),
        (["--no-such-flag"], "No such option"),
        (["--model", "kws-cnn"], "choose another model"),
        (["--data", "cifar11"], "cifar11"),
        (["--device", "toaster"], "try auto or cpu"),
        (["--engine", "steam"], "choose one of auto, stacked, threaded, loop"),
        (["--precision", "bf16", "--device", "cpu"], "bf16 needs a GPU"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_2(args, says, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["train", *SMALL, *args])
    assert stopped.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = [line for line in err.splitlines() if not line.startswith("run ")]
    assert line.startswith("fedskew: ")
    assert says in line


def test_debug_shows_the_traceback():
    done = fedskew("train", "--lr", "-1", "--debug")
    assert "Traceback" in done.stderr
    assert "FedskewError" in done.stderr


def test_a_refused_run_leaves_nothing_behind():
    assert fedskew("train", "--partition", "emd:1.95").returncode == 2
    assert json.loads(fedskew("runs", "list", "--json").stdout) == []


def test_divergence_is_told_and_kept():
    done = fedskew("train", "--model", "mlp", "--lr", "1e30", "--rounds", "20", "--json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert document["status"] == "diverged"
    assert "lower lr" in document["message"]
    assert document["rows"][-1]["loss"] is None


@pytest.mark.parametrize("command", ["train", "partition", "skew", "demo", "resume", "runs list", "data get", "bench"])
def test_help_has_an_example(command, capsys):
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    assert "Example" in capsys.readouterr().out


def test_your_own_data_and_your_own_network(tmp_path):
    """An .npz file and a module in the working folder, with nothing set by hand; the run can be resumed there."""
    g = np.random.default_rng(0)
    np.savez(tmp_path / "mine.npz", x=g.normal(size=(80, 6)).astype(np.float32), y=np.arange(80) % 4)
    (tmp_path / "mynets.py").write_text(
        "from torch import nn\n\n\ndef tiny(shape, classes):\n    return nn.Linear(shape[0], classes)\n"
    )
    args = ["--data", "mine.npz", "--model", "mynets:tiny", "--clients", "3", "--rounds", "2", "--json"]
    done = fedskew("train", *args, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["run"]["model"] == "mynets:tiny"
    assert document["rows"][-1]["bytes_up"] == 3 * (6 * 4 + 4) * 4
    again = fedskew("resume", document["id"], "--json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["rows"] == document["rows"]
