"""The papers' cells: published numbers where they stand in the source, runs as the protocol has them."""

import math
from dataclasses import replace

import pytest

from fedskew.data.sources import SOURCES
from fedskew.papers import lahoti, zhao2018
from fedskew.papers.zhao2018_exhibits import exhibit_table1
from fedskew.reproduce.cells import Outcome
from fedskew.run import Run

FULL = zhao2018.SCALES["full"]


def test_table1_is_what_table3_says():
    """The paper's own two tables agree: SGD less FedAvg non-IID at the same batch (0.05 for its rounding)."""
    column = {name: 3 + i for i, name in enumerate(zhao2018.COLUMNS)}
    accuracy = {(row[0], row[1], row[2]): row for row in zhao2018.TABLE3}
    for row in zhao2018.TABLE1:
        for name, at in column.items():
            lost = accuracy["SGD", row[1], None][at] - accuracy[f"FedAvg {row[0]}", row[1], row[2]][at]
            assert lost == pytest.approx(row[at], abs=0.05), (row, name)


def test_table1_is_ours_of_table3_with_the_deviation_of_a_difference():
    found = []
    for cell in zhao2018.table3("mnist", replace(FULL, seeds=2)):
        ends = (0.90, 0.94) if cell.setting["setting"] == "SGD" else (0.50, 0.53)
        rows = tuple([{"round": run.rounds, "accuracy": end}] for run, end in zip(cell.last, ends, strict=True))
        found.append(Outcome(cell, ("a", "b"), rows))
    for record in exhibit_table1(found).records:
        assert record["ours"] == pytest.approx(0.92 - 0.515)
        assert record["std"] == pytest.approx(math.sqrt((0.04**2 + 0.03**2) / 2))
        assert record["seeds"] == 2


def test_table2_falls_with_emd_and_ends_at_one_class():
    for means in zhao2018.TABLE2.values():
        assert list(means[1:]) == sorted(means[1:], reverse=True)
    assert zhao2018.EMDS[-1] == 1.8


@pytest.mark.parametrize("column", zhao2018.COLUMNS)
def test_table3_has_every_row_with_the_papers_recipe(column):
    cells = zhao2018.table3(column, FULL)
    assert len(cells) == len(zhao2018.TABLE3) == 10
    task = zhao2018.TASKS[column]
    for cell in cells:
        for run in (*cell.runs, *cell.after):
            assert run.batch == cell.setting["batch"] in (task.large, task.small)
            assert run.partition.clients == 10
            assert run.lr_decay == task.decay
    assert {cell.runs[0].lr for cell in cells} == {task.lr}
    trained = next(cell for cell in cells if cell.after)
    assert trained.runs[0].algorithm.kind == "sgd"
    assert trained.runs == cells[0].runs  # SGD of the first row, trained once
    assert trained.after[0].lr == pytest.approx(task.lr * task.decay**task.rounds)
    assert [str(cell.runs[0].partition) for cell in cells[1:5]] == ["iid", "classes:2", "classes:1", "classes:1"]


def test_fewer_passes_of_sgd_come_before_the_same_clients():
    row = next(cell for cell in zhao2018.table3("cifar10", FULL) if cell.after)
    for cell, passes in zip(zhao2018.pretrained("cifar10", FULL), zhao2018.PASSES, strict=True):
        assert cell.runs[0].model_dump() == row.runs[0].model_dump() | {"rounds": passes}
        assert cell.after[0].model_dump() == row.after[0].model_dump() | {"lr": pytest.approx(0.1 * 0.992**passes)}


def test_table2_and_figure4_are_eight_emds_of_five_distributions():
    cells = zhao2018.table2("cifar10", FULL)
    assert [cell.setting["emd"] for cell in cells] == list(zhao2018.EMDS)
    assert {len(set(cell.runs)) for cell in cells} == {5}
    assert {(run.batch, run.rounds) for cell in cells for run in cell.runs} == {(100, 500)}
    once = zhao2018.figure4("cifar10", FULL)
    assert {(run.rounds, run.divergence) for cell in once for run in cell.runs} == {(1, True)}


def test_figure7_holds_out_a_fifth_everywhere():
    cells = zhao2018.figure7("cifar10", FULL)
    assert {run.held_out for cell in cells for run in cell.runs} == {0.2}
    a, b = ([c for c in cells if c.where == where] for where in ("figure 7a", "figure 7b"))
    assert [cell.setting["beta"] for cell in a] == [0.0, *zhao2018.BETAS]
    assert all(run.share.alpha == 1 and run.warm_up is None for cell in a[1:] for run in cell.runs)
    assert all(run.warm_up.until == 0.6 for cell in b for run in cell.runs)
    assert {(run.share.beta, run.share.alpha) for cell in b for run in cell.runs} == {
        (beta, alpha) for beta in (0.1, 0.2) for alpha in zhao2018.ALPHAS
    }


def test_lahotis_recipe():
    cells = lahoti.settings("cifar10", lahoti.SCALES["full"])
    run = cells[1].runs[0]
    assert (run.batch, run.epochs, run.rounds, run.lr, run.partition.clients) == (10, 1, 30, 0.1, 20)
    both = lahoti.remedies("mnist", lahoti.SCALES["full"])[-1].runs[0]
    assert (both.share.beta, both.warm_up.fraction, both.rounds, both.lr) == (0.2, 0.2, 10, 0.01)


@pytest.mark.parametrize("scale", lahoti.SCALES)
def test_every_scale_trains_the_ten_percent_that_lahoti_publishes(scale):
    """Figures 4 and 5 had no rows at a scale that left it out."""
    for column in lahoti.COLUMNS:
        shown = [c.setting for c in lahoti.remedies(column, lahoti.SCALES[scale]) if c.setting["fraction"] == 0.1]
        assert [each["setting"] for each in shown] == list(lahoti.GAINS[column])


@pytest.mark.parametrize("paper", [zhao2018, lahoti])
@pytest.mark.parametrize("scale", ["smoke", "quick", "full"])
def test_every_run_can_be_written_down_and_read_back(paper, scale):
    makers = (
        [zhao2018.table3, zhao2018.table2, zhao2018.figure7]
        if paper is zhao2018
        else [lahoti.settings, lahoti.remedies]
    )
    runs = [
        run
        for make in makers
        for column in paper.COLUMNS
        for cell in make(column, paper.SCALES[scale])
        for run in cell.runs
    ]
    assert all(Run(**run.spec()) == run for run in runs)
    assert {run.data for run in runs} <= set(SOURCES)
    if scale == "smoke":
        assert {run.data for run in runs} == {"digits"}
