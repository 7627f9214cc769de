"""A reproduction from end to end at the smallest scale: trained once, shown beside the paper, moved elsewhere."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from fedskew import Store
from fedskew.cli import main
from fedskew.papers import zhao2018
from fedskew.reproduce import cells
from fedskew.reproduce.request import Request

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


@pytest.mark.slow
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


@pytest.mark.slow
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
