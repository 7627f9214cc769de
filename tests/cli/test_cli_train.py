"""`fedskew train` as a user meets it: a process, its two streams and its exit status."""

import csv
import io
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from fedskew.algorithms import KINDS, OPTIONS
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


def test_shared_data_and_warm_up_are_told_and_kept(capsys):
    def fedskew(*args):
        """In this process: seven commands would spend their time on starting."""
        with pytest.raises(SystemExit) as stopped:
            main([*args])
        assert stopped.value.code == 0
        return capsys.readouterr()

    args = ["--partition", "classes:1", "--share", "beta=0.1,alpha=0.5", "--warm-up", "0.6"]
    done = fedskew("train", *SMALL, *args)
    id = done.out.split()[0]
    assert "fedavg, share beta=0.1,alpha=0.5, warm-up 0.6: finished after round 2 of 2, accuracy" in done.out
    _, shared, warmed = done.err.splitlines()
    assert shared == "shared 56 of 111 examples with each client: EMD 1.80 -> 1.20, 40,320 bytes"
    assert re.fullmatch(r"warm-up: \d+ passes over 111 examples, accuracy \d+\.\d% on fresh ones", warmed)
    (listed,) = json.loads(fedskew("runs", "list", "--json").out)
    assert (listed["round"], listed["rounds"], listed["algorithm"]) == (2, 2, "fedavg")
    assert listed["remedy"] == "share beta=0.1,alpha=0.5, warm-up 0.6"
    shown = fedskew("runs", "show", id).out
    assert "EMD 1.80 -> 1.20" in shown
    assert "None" not in shown
    rows = list(csv.DictReader(io.StringIO(fedskew("runs", "export", id).out)))
    assert [row["round"] for row in rows] == ["0", "1", "2"]
    assert (rows[0]["prepared.bytes"], rows[0]["bytes_down"], rows[1]["prepared.bytes"]) == ("40320", "40320", "")
    assert float(rows[0]["prepared.warm_up.accuracy"]) >= 0.6
    more = fedskew("train", *SMALL, "--start", f"run:{id}", "--holdout", "0.1", "--validation", "0.3", "--json")
    document = json.loads(more.out)
    assert [row["round"] for row in document["rows"]] == [0, 1, 2]
    assert document["rows"][0]["loss"] is None
    assert document["rows"][0]["accuracy"] > 0.6
    assert (document["run"]["holdout"], document["run"]["validation"]) == (0.1, 0.3)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--share", "beta=0.9"], "change beta or holdout"),
        (["--share", "half"], "beta is missing; unknown key 'half'"),
        (["--warm-up", "0.6"], "warm-up trains on shared data"),
        (["--start", "nowhere.safetensors"], "there is no such file"),
        (["--start", "run:ffff"], "no run 'ffff'"),
        (["--validation", "1"], "validation = 1.0: it should be less than 1"),
        (["--algorithm", "fedsomething"], "choose one of fedavg, fedavgm, fedprox, scaffold"),
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
        (["--precision", "bf16", "--device", "cpu", "--engine", "loop"], "on cpu needs the engine threaded, not loop"),
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


def test_help_lists_every_method_and_keeps_what_is_in_brackets(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    said = capsys.readouterr().out
    for kind in KINDS:
        assert kind.model_fields["kind"].default in said
    for word in ("[fedavg]", "[auto]", *OPTIONS):
        assert word.removesuffix("restricted") in said


@pytest.mark.slow
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
