"""`fedskew demo` as a user meets it, and the effect that it is there to show."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedskew import demo
from fedskew.cli import main
from fedskew.data import datasets
from fedskew.experiment import train
from fedskew.run import Run
from fedskew.sides import split


def fedskew(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fedskew", "demo", *args]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_json_is_one_document_and_the_report_is_the_only_file(tmp_path: Path) -> None:
    done = fedskew("--json", "--rounds", "2", "--out", "a/b.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document.keys() == {"rows", "seconds", "report"}
    assert document["report"] == str(Path("a/b.html"))
    assert [p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file()] == [Path("a/b.html")]
    rows = document["rows"]
    assert [(row["algorithm"], row["partition"]) for row in rows] == [(a, p) for a, p, _ in demo.RUNS]
    for row in rows:
        assert list(row) == [
            "algorithm", "partition", "remedy", "emd", "accuracy", "loss_vs_sgd", "divergence", "shared_bytes",
        ]  # fmt: skip
        assert row["loss_vs_sgd"] == pytest.approx(rows[0]["accuracy"] - row["accuracy"])
    assert (rows[0]["emd"], rows[0]["divergence"], rows[0]["loss_vs_sgd"]) == (0, 0, 0)
    assert [row["emd"] for row in rows[2:5]] == pytest.approx([1.6, 1.8, 1.8])
    assert [row["emd"] for row in rows[5:]] == pytest.approx(
        [1.8 * 111 / 167] * 2, abs=0.01
    )  # 111 of its own, 56 shared
    assert [row["remedy"] for row in rows[:5]] == [None] * 5
    assert [row["remedy"] for row in rows[5:]] == [
        "share beta=0.1,alpha=0.5",
        "share beta=0.1,alpha=0.5, warm-up 0.6",
    ]
    assert [row["shared_bytes"] for row in rows] == [0] * 5 + [10 * 56 * 72] * 2
    assert "7 of 7" in done.stderr


def test_the_table_is_on_standard_output_and_the_rest_is_not(tmp_path: Path) -> None:
    done = fedskew("--rounds", "1", "--seed", "7", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "fedavgm:0.9" in done.stdout
    assert "fedavg, share" in done.stdout
    assert "seed 7" in " ".join(done.stdout.split())
    assert "report.html" not in done.stdout
    assert "report.html" in done.stderr
    page = (tmp_path / "report.html").read_text()
    assert page.count('<script type="application/json">') == 8  # four populations, curves, two divergences, EMD


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--rounds", "0"], "rounds = 0: it should be greater than or equal to 1"),
        (["--seed", "-1"], "seed = -1"),
        (["--out", "report.pdf"], "must end in .html"),
        (["--out", "folder.html"], "is a folder"),
    ],
)
def test_a_mistake_is_one_line_before_any_training(
    args: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(SystemExit) as stopped:
        main(["demo", *args])
    assert stopped.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err.splitlines()[-1]
    assert "1 of 7" not in err


def test_all_runs_share_one_recipe() -> None:
    different = {"algorithm", "partition", "divergence", "share", "warm_up"}
    recipes = [run.model_dump(exclude=different) for run in demo.runs(3, 7)]
    assert recipes == [recipes[0]] * 7


def test_sharing_changes_nobodys_own_data() -> None:
    """The comparison is fair: one class a client, with and without sharing, are the same clients."""
    data = datasets.load("digits")
    *_, one, momentum, shared, warmed = (split(run, data) for run in demo.runs(3))
    for other in (momentum, shared, warmed):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_accuracy_is_that_of_rounds_and_not_of_the_preparation() -> None:
    run = demo.runs(rounds=1)[-1]
    rows = list(train(run, device="cpu"))
    assert [row.round for row in rows] == [0, 1]
    assert demo.Outcome(run, rows).accuracy == rows[1].accuracy
    assert demo.Outcome(run, rows).label == "fedavg, share, warm-up, classes:1"


def test_the_words_follow_the_numbers() -> None:
    outcomes = [demo.Outcome(run, list(train(run, device="cpu"))) for run in demo.runs(rounds=1)]
    text = demo.intro(outcomes)
    for outcome in outcomes:
        assert f"{outcome.accuracy:.1%}" in text


@pytest.mark.slow
def test_the_effect_is_visible_on_a_seed_that_did_not_choose_the_recipe() -> None:
    def accuracy(run: Run, rounds: int) -> list[float]:
        """After 20 rounds and at the end; nothing decays, so the first 20 of 40 rounds are a run of 20."""
        rows = list(train(run.model_copy(update={"rounds": rounds, "divergence": False}), device="cpu"))
        return [demo.Outcome(run, [row for row in rows if row.round <= n]).accuracy for n in (20, rounds)]

    lengths = (20, 20, 20, 40, 40, 20, 20)
    sgd, iid, two, one, momentum, shared, warmed = map(accuracy, demo.runs(seed=3), lengths)
    assert abs(sgd[0] - iid[0]) < 0.04
    assert iid[0] - one[0] > 0.12
    assert one[0] < two[0] < iid[0]
    assert momentum[1] - one[1] > 0.06
    assert iid[0] - shared[0] < (iid[0] - one[0]) / 2  # sharing recovers most of it
    assert iid[0] - warmed[0] < (iid[0] - one[0]) / 2
