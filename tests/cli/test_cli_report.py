"""`fedskew report` as a user meets it."""

import json
import os
import subprocess
import sys
import time

import pytest

from fedskew import Run, Store
from stopped import ENDLESS

EVIL = "<script>alert(1)</script>"
SMALL = {"model": "softmax", "examples": 200, "clients": 5, "rounds": 2, "lr": 0.5}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A store of four runs: two seeds of one name, one with divergence, one with a name that looks like a script."""
    store = Store(tmp_path_factory.mktemp("runs"))
    ids = []
    for run in (
        Run(partition="iid", name="even", **SMALL),
        Run(partition="iid", name="even", seed=1, **SMALL),
        Run(partition="classes:2", divergence=True, **SMALL),
        Run(partition="dirichlet:0.5", algorithm="fedavgm:0.9", name=EVIL, **SMALL),
    ):
        ids.append(store.create(run))
        for _ in store.advance(ids[-1], device="cpu"):
            pass
    return store, ids


@pytest.fixture
def fedskew(fedskew, monkeypatch, tmp_path, trained):
    """A command in an empty folder, with these runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSKEW_STORE", str(trained[0].folder))
    return fedskew


def test_one_page_of_all_runs(fedskew, trained, tmp_path):
    code, out, err = fedskew("report", "--all", "--json")
    assert code == 0, err
    document = json.loads(out)
    page = tmp_path / "report.html"
    assert document["files"] == ["report.html"]
    assert document["bytes"] == page.stat().st_size < 2_000_000
    assert sorted(document["runs"]) == sorted(trained[1])
    text = page.read_text()
    assert EVIL not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "3 of 4" not in text  # no run is left out
    assert "<p>4 runs, written 2" in text


def test_runs_are_chosen_by_id_beginning_and_name(fedskew, trained):
    first, second, drifting, evil = trained[1]

    def chosen(*names):
        code, out, err = fedskew("report", *names, "--out", "r.html", "--json")
        assert code == 0, err
        return json.loads(out)["runs"]

    assert chosen(evil) == [evil]
    assert chosen(drifting[:6], evil) == [drifting, evil]
    assert chosen("even") == [first, second]
    assert chosen(EVIL, evil) == [evil]  # twice named, once shown
    assert chosen("--partition", "iid") == [first, second]
    assert chosen("--algorithm", "fedavgm*") == [evil]
    assert chosen("even", "--status", "finished") == [first, second]


def test_runs_list_takes_the_same_filters(fedskew):
    code, out, _ = fedskew("runs", "list", "--partition", "d*", "--json")
    assert code == 0
    assert [r["partition"] for r in json.loads(out)] == ["dirichlet:0.5"]
    assert "none of 4 runs fits" in fedskew("runs", "list", "--data", "mnist")[2]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ([], "which runs? name some"),
        (["nope"], "no run 'nope' in"),
        (["--data", "mnist"], "no run fits these filters"),
        (["even", "--all"], "--all means every run"),
        (["--all", "--out", "r.pdf"], "does not go with the format html: end it in .html"),
        (
            ["--all", "--out", "r.svg", "--format", "png"],
            "does not go with the format png: end it in .png, or a folder",
        ),
        (["--all", "--out", "folder"], "end it in .html"),
        (
            ["--all", "--format", "svg", "--chart", "pie"],
            "--chart 'pie' is not among the charts of these runs: accuracy",
        ),
        (["--all", "--target", "7"], "--target"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(fedskew, tmp_path, args, told):
    code, out, err = fedskew("report", *args)
    assert (code, out) == (2, "")
    assert told in err
    assert len(err.strip().splitlines()) == 1
    assert not [p for p in tmp_path.iterdir() if p.name != "store"]


def test_a_folder_in_the_way_is_said(fedskew, tmp_path):
    (tmp_path / "r.html").mkdir()
    code, _, err = fedskew("report", "even", "--out", "r.html")
    assert code == 2
    assert "cannot write 'r.html'" in err


def test_markdown_with_pictures_beside_it(fedskew, tmp_path):
    code, out, err = fedskew("report", "--all", "--out", "notes/r.md", "--json")
    assert code == 0, err
    document = json.loads(out)
    text = (tmp_path / "notes" / "r.md").read_text()
    assert document["files"][0] == "notes/r.md"
    assert len(document["files"]) > 10
    assert "](r-charts/accuracy.svg)" in text
    assert (tmp_path / "notes" / "r-charts" / "accuracy.svg").exists()
    assert "<script" not in text
    assert "| even | 2 |" in text  # one row for both seeds


def test_pictures(fedskew, tmp_path):
    assert fedskew("report", "even", "--format", "svg", "--chart", "accuracy", "--chart", "chain")[0] == 0
    assert sorted(p.name for p in (tmp_path / "report").iterdir()) == ["accuracy.svg", "chain.svg"]
    assert fedskew("report", "even", "--out", "one.png", "--chart", "chain")[0] == 0
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_without_rows_is_no_report_yet(fedskew, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSKEW_STORE", str(tmp_path / "empty"))
    assert "there are no runs in" in fedskew("report", "--all")[2]
    id = Store().create(Run(**SMALL))
    code, _, err = fedskew("report", id)
    assert code == 2
    assert f"there is no row yet in {id}" in err


def test_a_run_that_still_trains_is_reported_as_far_as_it_is(fedskew, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSKEW_STORE", str(tmp_path / "live"))
    store = Store()
    ask = ["train", "--model", "softmax", "--rounds", str(ENDLESS), "--device", "cpu"]
    training = subprocess.Popen(
        [sys.executable, "-m", "fedskew", *ask], env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 60
        while not any(e.round > 2 for e in store.runs()) and time.monotonic() < until:
            time.sleep(0.2)
        code, _, err = fedskew("report", "--all")
        assert code == 0, err
        assert "1 of them still train" in (tmp_path / "report.html").read_text()
    finally:
        training.terminate()
        training.wait(30)
