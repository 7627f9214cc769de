"""`fedskew runs` and `fedskew resume` as a user meets them, signals and a full disk included."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from fedskew.experiment import train
from fedskew.run import Run
from fedskew.store import Store
from stopped import ENDLESS, further

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"data": "digits", "examples": 200, "model": "softmax", "partition": "classes:2", "clients": 5, "lr": 0.5}
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def small(**fields):
    return Run(**(SMALL | {"rounds": 4} | fields))


def plain(records):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


@pytest.fixture
def store():
    """The one of FEDSKEW_STORE, which is this test's own."""
    return Store()


def test_an_empty_store_is_no_error(fedskew, store):
    assert fedskew("runs", "list", "--json")[:2] == (0, "[]\n")
    code, out, err = fedskew("runs", "list")
    assert (code, out) == (0, "")
    assert "no runs in" in err
    assert not store.folder.exists()


def test_list(fedskew, store):
    first = store.create(small(name="[bold]first\x1b[31m", eval_every=3))
    second = store.create(small(algorithm="fedavgm:0.9"))
    for row in store.advance(first):
        if row.round == 3:
            accuracy = row.accuracy
            break
    _, out, err = fedskew("runs", "list", "--json")
    listed = {r["id"]: r for r in json.loads(out)}
    assert err == ""
    assert set(listed) == {first, second}
    found = listed[first]
    assert found.pop("created").startswith("20")
    assert found == {
        "id": first,
        "name": "[bold]first\x1b[31m",
        "status": "interrupted",
        "data": "digits",
        "partition": "classes:2",
        "algorithm": "fedavg",
        "remedy": "",
        "round": 3,
        "rounds": 4,
        "accuracy": accuracy,
    }
    assert listed[second]["algorithm"] == "fedavgm:0.9"
    assert listed[second]["accuracy"] is None
    _, out, _ = fedskew("runs", "list")
    assert first in out
    assert f"{accuracy:.2%}" in out
    assert "\x1b" not in out


def test_show(fedskew, store):
    id = store.create(small(rounds=7))
    list(store.advance(id))
    found = json.loads(fedskew("runs", "show", id[:4], "--json")[1])
    assert Run(**found["run"]) == small(rounds=7)
    assert [r["round"] for r in found["rows"]] == [3, 4, 5, 6, 7]
    assert [c["round"] for c in found["checkpoints"]] == [7]
    assert (store.folder / found["checkpoints"][0]["file"]).stat().st_size == found["checkpoints"][0]["bytes"]
    code, out, _ = fedskew("runs", "show", id)
    assert code == 0
    assert "softmax" in out
    assert "round-000007.safetensors" in out


def test_export(fedskew, store, tmp_path):
    id = store.create(small(divergence=True, eval_every=2))
    list(store.advance(id))
    records = store.records(id)
    document = json.loads(fedskew("runs", "export", id, "--format", "json")[1])
    assert document["rows"] == records
    assert document["id"] == id
    _, out, _ = fedskew("runs", "export", id)
    lines = list(csv.DictReader(io.StringIO(out)))
    assert [int(line["round"]) for line in lines] == [1, 2, 3, 4]
    assert lines[0]["accuracy"] == lines[0]["per_class.3"] == ""
    assert float(lines[1]["accuracy"]) == records[1]["accuracy"]
    assert [float(lines[1][f"per_class.{i}"]) for i in range(10)] == records[1]["per_class"]
    assert float(lines[0]["divergence.relative.total"]) == records[0]["divergence"]["relative"]["total"]
    assert list(lines[0])[4:7] == ["test_loss", "per_class.0", "per_class.1"]
    path = tmp_path / "rows.csv"
    code, nothing, err = fedskew("runs", "export", id, "--out", path)
    assert (code, nothing) == (0, "")
    assert "rows.csv" in err
    assert path.read_text() == out
    code, _, err = fedskew("runs", "export", id, "--out", tmp_path / "no" / "such" / "folder")
    assert code == 2
    assert "give a file that can be written" in err


def test_delete(fedskew, store, monkeypatch):
    ids = [store.create(small()) for _ in range(3)]
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))  # no terminal: nobody can be asked
    code, _, err = fedskew("runs", "delete", ids[0])
    assert code == 2
    assert "add --yes" in err
    code, _, err = fedskew("runs", "delete", ids[0], "ffffffff", "--yes")
    assert code == 2
    assert len(store.runs()) == 3  # none is gone when one is not there
    training = store.advance(ids[0])
    next(training)
    code, _, err = fedskew("runs", "delete", ids[0], "--yes")
    assert code == 2
    assert "is being trained" in err
    training.close()
    assert fedskew("runs", "delete", ids[0], ids[1], ids[0], "-y")[0] == 0
    assert [e.id for e in store.runs()] == [ids[2]]


@pytest.mark.parametrize("id", ["../x", "%2e%2e", "zz", "ffffffff", "f"])
@pytest.mark.parametrize("command", [["runs", "show"], ["runs", "export"], ["runs", "delete", "-y"], ["resume"]])
def test_what_is_no_run_is_one_line(fedskew, store, command, id):
    store.create(small())
    code, out, err = fedskew(*command, id)
    assert (code, out) == (2, "")
    assert err.startswith("fedskew: ")
    assert err.count("\n") == 1
    assert "fedskew runs list" in err


def test_resume_ends_like_a_run_that_never_stopped(fedskew, store):
    run = small(algorithm="fedavgm:0.9")
    id = store.create(run)
    assert [row.round for row in store.advance(id, until=2)] == [1, 2]
    code, out, err = fedskew("resume", id, "--json", "--checkpoint-seconds", 0, "--device", "cpu")
    document = json.loads(out)
    assert code == 0
    assert err == ""
    assert plain(document["rows"]) == json.loads(json.dumps(plain(row.record() for row in train(run))))
    assert (document["id"], document["status"]) == (id, "finished")
    assert document["accuracy"] == document["rows"][-1]["accuracy"]
    assert document["seconds"] == pytest.approx(sum(r["seconds"] for r in document["rows"]))
    assert Run(**document["run"]) == run
    code, out, err = fedskew("resume", id)
    assert code == 0
    assert f"{id} digits, classes:2, fedavgm:0.9: finished after round 4 of 4" in out
    assert "is finished already" in err


def test_resume_refuses_a_config_that_changed(fedskew, store, tmp_path):
    id = store.create(Run(partition="classes:2", clients=5, rounds=2, model="softmax", examples=200))
    config = tmp_path / "run.toml"
    text = 'partition = "classes:2"\nclients = 5\nrounds = 2\nmodel = "softmax"\nexamples = 200\n'
    config.write_text(text + "lr = 0.25\n")
    code, _, err = fedskew("resume", id, "--config", config)
    assert code == 2
    assert "lr (stored 0.1, now 0.25)" in err
    assert store.records(id) == []
    config.write_text(text)
    assert fedskew("resume", id, "--config", config)[0] == 0
    code, _, err = fedskew("resume", id, "--config", tmp_path / "none.toml")
    assert code == 2
    assert "give a TOML file" in err


def test_resume_says_that_a_run_diverged(fedskew, store):
    id = store.create(small(lr=1.0, weight_decay=1e4, rounds=20))
    code, out, _ = fedskew("resume", id, "--json")
    document = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert code == 1
    assert document["status"] == "diverged"
    assert f"in round {document['rows'][-1]['round']}" in document["message"]
    assert document["rows"][-1]["loss"] is None
    code, out, err = fedskew("resume", id)
    assert code == 1
    assert "diverged (the training loss was nan in round" in out
    assert "is diverged already" in err


def start(*args):
    command = [sys.executable, "-m", "fedskew", *map(str, args)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=os.environ | ONE_THREAD, start_new_session=True, **pipes)


def wait_for(condition, seconds=120):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"])
def test_a_signal_checkpoints_and_leaves_nothing_behind(store, number, code, tmp_path):
    run = small(rounds=ENDLESS, batch=None, eval_every=10)
    id = store.create(run)
    process = start("resume", id, "--checkpoint-seconds", 1000, "--json")
    wait_for(lambda: store.find(id).round >= 3)
    os.killpg(process.pid, number)
    asked = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - asked < 5
    assert process.returncode == code
    assert out == ""
    assert f"go on with: fedskew resume {id}" in err
    assert "Traceback" not in err
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    entry = store.find(id)
    assert entry.status == "interrupted"
    assert entry.round >= 3
    assert [c["round"] for c in store.checkpoints(id)] == [entry.round]  # the last round done, not one before
    before = store.records(id)
    process = start("resume", id, "--json")
    wait_for(lambda: store.find(id).round > entry.round)
    os.killpg(process.pid, number)
    process.communicate(timeout=60)
    assert process.returncode == code
    assert store.records(id)[: len(before)] == before  # seconds and all: nothing was trained twice
    found, expected = further(store, [run], Store(tmp_path / "whole"))
    assert found == expected


def test_a_full_disk_is_one_line(fedskew, disk, monkeypatch):
    monkeypatch.setenv("FEDSKEW_STORE", str(disk))
    store = Store()
    id = store.create(small(rounds=1000, batch=None))
    room = os.statvfs(disk)
    (disk / "ballast").write_bytes(bytes(room.f_bavail * room.f_frsize - 64 * 1024))
    code, out, err = fedskew("resume", id, "--checkpoint-seconds", 0, "--json")
    assert (code, out) == (2, "")
    assert err.startswith("fedskew: ")
    assert err.count("\n") == 1
    assert "No space left on device" in err or "disk is full" in err
