"""A reproduction from end to end at the smallest scale: trained once, shown beside the paper, moved elsewhere."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from fedskew import Store
from fedskew.cli import main
from fedskew.papers import zhao2018
from fedskew.reproduce import cells, moved
from fedskew.reproduce.request import Request
from fedskew.store import archive

TINY = replace(zhao2018.SCALES["smoke"], rounds=0.004)


def quiet(rows, rounds, label):
    return rows


def fedskew(*args, **more):
    return subprocess.run([sys.executable, "-m", "fedskew", *args], capture_output=True, text=True, **more)


def test_cells_are_trained_once_and_read_back():
    store = Store()
    wanted = zhao2018.table3("mnist", TINY)
    before = cells.cost(store, wanted, probe=False)
    assert (before.runs, before.rounds) == (10, 20)  # the pre-trained row's SGD is the first row's
    cells.train(store, wanted, quiet)
    after = cells.cost(store, wanted)
    assert (after.runs, after.rounds, after.seconds) == (0, 0, 0.0)
    found = cells.outcomes(store, wanted)
    assert all(len(outcome.accuracies) == 1 for outcome in found)
    first = found[0].record()
    assert (first["data"], first["setting"], first["batch"], first["paper"]) == ("mnist", "SGD", 100, 0.9869)
    assert first["ours"] == pytest.approx(found[0].accuracies[0])
    assert first["seeds"] == 1
    warm = next(outcome for outcome in found if outcome.cell.after)
    assert store.find(warm.ids[0]).spec["start"] == f"run:{found[0].ids[0]}"
    count = len(store.runs())
    cells.train(store, wanted, quiet)
    assert len(store.runs()) == count == 10


def test_a_cell_without_runs_is_empty_and_not_wrong():
    found = cells.outcomes(Store(), zhao2018.table3("cifar10", TINY))
    assert {(outcome.record()["ours"], outcome.record()["seeds"]) for outcome in found} == {(None, 0)}
    shown = Request("zhao2018", ("table 1", "table 3", "figure 1", "figure 2"), ("cifar10",), TINY).exhibits(Store())
    assert [exhibit.name for exhibit in shown] == ["table 1", "table 3", "figure 1", "figure 2"]
    assert "–" in shown[1].table.markdown()


@pytest.mark.parametrize("paper", ["zhao2018", "lahoti"])
def test_the_whole_path(paper, tmp_path):
    """Every table and figure of a paper in one command, as files and as JSON; a second call trains nothing."""
    if paper == "lahoti":
        ask = ["reproduce", "lahoti", "--scale", "smoke"]
    else:
        ask = ["reproduce", "zhao2018", "--scale", "smoke", "--data", "mnist"]
    out = tmp_path / "out"
    done = fedskew(*ask, "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    names = {"zhao2018": {"table 3", "table 1", "table 2", "figure 1"}, "lahoti": {"figure 1", "figure 5", "figure 7"}}
    assert names[paper] <= set(document)
    for name, records in document.items():
        assert records, name
        assert json.loads((out / f"{name.replace(' ', '')}.json").read_text()) == records
    assert (out / "report.html").stat().st_size > 100_000
    assert list(out.glob("figure*.svg"))
    about = json.loads((out / "about.json").read_text())
    assert about["runs"] > 10
    assert about["trained"][0]["torch"]
    runs = len(Store().runs())
    again = fedskew(*ask, "--out", str(out), "--json")
    assert json.loads(again.stdout) == document
    assert len(Store().runs()) == runs
    if paper == "zhao2018":
        keys = {"data", "setting", "batch", "epochs", "paper", "ours", "std", "seeds", "rounds"}
        assert all(keys <= set(row) for row in document["table 3"])
        scores = {(r["setting"], r["batch"]): r["ours"] for r in document["table 3"]}
        assert scores["FedAvg IID", 10] > scores["FedAvg non-IID(1)", 10] + 0.1


def test_hsus_whole_path(tmp_path):
    """Searches, chosen runs, every figure and the remedies in one command; then nothing is left to be trained."""
    out = tmp_path / "out"
    done = fedskew("reproduce", "hsu2019", "--scale", "smoke", "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert list(document) == [*(f"figure {n}" for n in range(1, 7)), "table remedies"]
    charts = {"figure1": 5, "figure2": 1, "figure3": 2, "figure4": 2, "figure5": 2, "figure6": 2}
    assert {name: len(list(out.glob(f"{name}*.svg"))) for name in charts} == charts
    for name in ("figure 2", "figure 4", "figure 5", "figure 6", "table remedies"):
        assert all(r["accuracy"] > 0 and r["rounds"] == 12 and r["seeds"] == 1 for r in document[name]), name
    one_class, even = (next(r for r in document["figure 1"] if r["alpha"] == alpha) for alpha in (0, 100))
    assert one_class["emd"] > 1.7 > 1 > even["emd"]
    assert one_class["classes"] == 1
    accuracy = {(r["alpha"], r["C"], r["algorithm"]): r["accuracy"] for r in document["figure 5"]}
    assert accuracy[100, 0.1, "FedAvgM"] > accuracy[0, 0.1, "FedAvg"] + 0.2
    assert {r["accuracy"] for r in document["figure 2"]} <= set(accuracy.values())  # the same runs
    request = Request.of("hsu2019", [], None, "smoke", None)
    assert cells.cost(Store(), request.cells(), probe=False).rounds == 0


def test_a_reproduction_that_was_killed_goes_on_on_another_machine(tmp_path):
    """kill -9, pack, unpack into another store, go on: the rows are those of a run that was never stopped."""
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    wanted = zhao2018.table2("mnist", replace(TINY, rounds=0.4))[:1]
    script = (
        "from dataclasses import replace\nfrom fedskew import Store\nfrom fedskew.papers import zhao2018\n"
        "from fedskew.reproduce import cells\n"
        "scale = replace(zhao2018.SCALES['smoke'], rounds=0.4)\n"
        f"store, wanted = Store({str(here.folder)!r}), zhao2018.table2('mnist', scale)[:1]\n"
        "cells.train(store, wanted, lambda rows, rounds, label: rows, checkpoint_seconds=0)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    deadline = time.monotonic() + 120
    while not any(entry.round >= 3 for entry in here.runs()) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    ids = [entry.id for entry in here.runs()]
    stopped = {entry.id: entry.round for entry in here.runs()}
    assert all(0 < round < 200 for round in stopped.values())
    packed = tmp_path / "moved.zip"
    assert archive.pack(here, ids, packed) == ids
    assert sorted(archive.unpack(there, packed)) == sorted(ids)
    assert archive.unpack(there, packed) == []
    began = {entry.id: there.state(entry.id)[0] for entry in there.runs()}
    assert all(began[id] >= stopped[id] - 1 for id in ids)
    cells.train(there, wanted, quiet)
    whole = Store(tmp_path / "whole")
    cells.train(whole, wanted, quiet)
    (moved,), (straight,) = cells.outcomes(there, wanted), cells.outcomes(whole, wanted)
    assert moved.accuracies == straight.accuracies
    for a, b in zip(moved.records, straight.records, strict=True):
        assert [r["loss"] for r in a] == [r["loss"] for r in b]
        assert [r["accuracy"] for r in a] == [r["accuracy"] for r in b]


def only_trains(tmp_path, store, *more):
    """`python -m fedskew.reproduce` where rich, typer and charts are missing."""
    banned = "import sys\nfor name in ('altair', 'typer', 'rich', 'vl_convert'): sys.modules[name] = None\n"
    start = "import runpy\nrunpy.run_module('fedskew.reproduce', run_name='__main__')"
    ask = ["zhao2018", "table3", "--data", "mnist", "--scale", "smoke", "--at-once", "2"]
    return subprocess.Popen(
        [sys.executable, "-c", banned + start, *ask, "--pack", str(tmp_path / "part.zip"), *more],
        env=os.environ | {"FEDSKEW_STORE": str(tmp_path / store)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_machine_that_only_trains(tmp_path):
    """Stopped in time, packed, and gone on with from the archive in another store."""
    first = only_trains(tmp_path, "first", "--seconds", "0.5")
    assert "out of time" in first.communicate()[0]
    assert first.returncode == 0
    second = only_trains(tmp_path, "second", "--unpack", str(tmp_path / "part.zip"))
    said = second.communicate()[0]
    assert "unpacked" in said
    assert said.count(", round 30: ") == 10


def test_a_machine_that_is_gone_has_left_what_it_packed(tmp_path):
    """Killed in the middle: rows and checkpoints up to a moment ago are in the archive."""
    lost = only_trains(tmp_path, "lost", "--pack-every", "0.3", "--piece-mb", "0.1")
    assert any(line.startswith("packed") for line in lost.stdout)
    time.sleep(1)
    lost.kill()
    lost.communicate()
    home = Store(tmp_path / "home")
    assert archive.unpack(home, tmp_path / "part.zip")
    kept = [home.state(entry.id)[0] for entry in home.runs() if not entry.over]
    assert max(kept) > 0


def test_an_error_does_not_keep_it_from_packing(tmp_path):
    failed = only_trains(tmp_path, "failed", "--precision", "fp64")
    assert "packed" in failed.communicate()[0]
    assert failed.returncode == 1


def test_weights_that_another_run_begins_with_go_along_while_they_are_wanted(tmp_path):
    here, there, home = (Store(tmp_path / name) for name in ("here", "there", "home"))
    both = next(cell for cell in zhao2018.table3("mnist", TINY) if cell.after)
    cells.train(here, [replace(both, after=())], quiet)
    moved.pack(here, [both], tmp_path / "half.zip")
    assert archive.unpack(there, tmp_path / "half.zip") != []
    cells.train(there, [both], quiet)
    moved.pack(there, [both], tmp_path / "whole.zip")
    archive.unpack(home, tmp_path / "whole.zip")
    (outcome,) = cells.outcomes(home, [both])
    assert len(outcome.accuracies) == 1
    assert not any(home.checkpoints(entry.id) for entry in home.runs())


def test_an_archive_is_checked(tmp_path):
    with pytest.raises(SystemExit):
        main(["runs", "unpack", str(tmp_path / "none.zip")])
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(Exception, match="not a whole archive"):
        archive.unpack(Store(), broken)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["zhao2019"], "choose one of zhao2018, lahoti, hsu2019"),
        (["hsu2019", "--figure", "5", "--only", "C=3"], "no cell is left of"),
        (["zhao2018", "--table", "9"], "zhao2018 has no table 9"),
        (["lahoti", "--data", "kws"], "choose one of mnist, cifar10"),
        (["zhao2018", "--scale", "huge"], "choose one of smoke, quick, full"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_2(args, says, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", *args])
    assert stopped.value.code == 2
    assert says in " ".join(capsys.readouterr().err.split())


def test_a_plan_trains_nothing(capsys):
    with pytest.raises(SystemExit):
        main(["reproduce", "zhao2018", "--scale", "smoke", "--table", "2", "--data", "mnist", "--plan", "--json"])
    plan = json.loads(capsys.readouterr().out)
    assert plan["runs"] == 4
    assert plan["seconds"] > 0
    assert Store().runs() == []
