"""`fedskew compare` as a user meets it."""

import json
import signal
import subprocess
import sys
import time

import pytest

from fedskew import Store
from fedskew.cli import main

ASK = ["compare", "--partition", "classes:1", "--model", "softmax", "--rounds", "3", "--lr", "0.05"]


def fedskew(*args):
    return subprocess.run([sys.executable, "-m", "fedskew", *args], capture_output=True, text=True)


def test_one_document_a_page_and_nothing_trained_twice(tmp_path):
    page = tmp_path / "page.html"
    ask = [
        *ASK,
        "--algorithms",
        "fedavg,fedavgm:0.9",
        "--share",
        "beta=0.1",
        "--seeds",
        "2",
        "--out",
        str(page),
        "--json",
    ]
    first = fedskew(*ask)
    assert first.returncode == 0, first.stderr
    document = json.loads(first.stdout)
    rows = document["rows"]
    keys = ("algorithm", "remedy", "accuracy", "std", "rounds_to_target", "bytes", "seconds", "lr")
    assert all(key in row for row in rows for key in keys)
    assert {(row["algorithm"], row["remedy"]) for row in rows} == {
        ("fedavg", "iid clients"),
        ("fedavg", None),
        ("fedavg", "share beta=0.1"),
        ("fedavgm:0.9", None),
        ("fedavgm:0.9", "share beta=0.1"),
    }
    assert "fedavgm:0.9 + share beta=0.1" in page.read_text()
    assert len(Store().runs()) == 10
    again = fedskew(*ask)
    assert json.loads(again.stdout)["rows"] == rows
    assert len(Store().runs()) == 10


def test_a_table_for_people(tmp_path):
    done = fedskew(*ASK, "--algorithms", "fedavg", "--tune", "lr=0.01/0.05", "--out", str(tmp_path / "c.html"))
    assert done.returncode == 0, done.stderr
    assert "iid clients" in done.stdout
    assert "fedavg: lr 0.0" in done.stderr


def test_a_comparison_that_was_killed_goes_on(tmp_path):
    ask = [
        *ASK[:-4],
        "--rounds",
        "600",
        "--lr",
        "0.05",
        "--algorithms",
        "fedavg,fedprox:1",
        "--out",
        str(tmp_path / "c.html"),
    ]
    process = subprocess.Popen([sys.executable, "-m", "fedskew", *ask], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    store = Store()
    deadline = time.monotonic() + 120
    while not any(entry.round >= 5 for entry in store.runs()) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    ids = {entry.id for entry in store.runs()}
    assert len(ids) == 3
    assert any(entry.round < 600 for entry in store.runs())
    done = fedskew(*ask, "--json")
    assert done.returncode == 0, done.stderr
    assert {entry.id for entry in store.runs()} == ids
    assert {(entry.status, entry.round) for entry in store.runs()} == {("finished", 600)}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--tune", "momentum"], "only lr can be tuned"),
        (["--tune", "lr=a/b"], "write learning rates with / between"),
        (["--warm-up", "0.6"], "add --share"),
        (["--algorithms", "fedsuper"], "choose one of fedavg, fedavgm"),
        (["--out", "page.txt"], "must end in .html, .svg, .md, .json"),
        (["--share", "beta=3"], "beta = '3'"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_2(args, says, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([*ASK, *args])
    assert stopped.value.code == 2
    err = capsys.readouterr().err
    assert says in " ".join(err.split())
    assert "Traceback" not in err
