"""Hsu et al.: the grid is the paper's, searches never see the test set, and what is shown is what was trained."""

import json
import shlex
from dataclasses import replace

import numpy as np
import pytest

from fedskew import Store, load, rng
from fedskew.cli.train import NOT_THE_RUNS
from fedskew.errors import FedskewError
from fedskew.papers import hsu2019, hsu2019_exhibits
from fedskew.papers.protocol import kept
from fedskew.reproduce import cells
from fedskew.reproduce.cells import Outcome
from fedskew.reproduce.request import Request
from fedskew.run import Run

FULL = hsu2019.SCALES["full"]


def test_the_recipe_is_the_papers():
    asked = hsu2019.figure5("cifar10", FULL)
    assert len(asked) == 4 * 2 * 8 * 2
    runs = [run for cell in asked for run in cell.runs]
    assert {(r.batch, r.weight_decay, r.lr_decay, r.rounds, r.partition.clients) for r in runs} == {
        (64, 0.004, 1.0, 10_000, 100)
    }
    assert {r.lr_of(10_000) == r.lr for r in runs} == {True}
    assert {r.participation for r in runs} == {0.05, 0.1, 0.2, 0.4}
    assert {r.epochs for r in runs} == {1, 5}
    assert {r.partition.alpha for r in runs} == {0, 0.05, 0.1, 0.2, 0.5, 1, 10, 100}
    assert {len({r.seed for r in cell.runs}) for cell in asked} == {5}
    every = {(cell.setting["lr"], cell.setting["beta"]) for cell in hsu2019.figure6("cifar10", FULL)}
    assert len(every) == 8 * 6
    assert max(every) == (0.3, 0.997)
    assert len(hsu2019.figure4("cifar10", FULL)) == 2 * 2 * 8 * 8


@pytest.mark.parametrize("scale", ["smoke", "quick", "full"])
def test_searches_are_of_the_grid_and_never_see_the_test_set(scale):
    grid = hsu2019.SCALES[scale]
    makers = (hsu2019.figure2, hsu2019.figure3, hsu2019.figure5, hsu2019.remedies)
    asked = [cell for make in makers for cell in make("cifar10", grid)]
    for cell in asked:
        assert all(run.validation == 0 for run in cell.runs)
        if cell.search:
            assert all(run.validation == 0.1 for run in cell.search.candidates)
            assert len(set(cell.search.candidates)) == len(cell.search.candidates) > 0
            assert list(cell.search.rungs) == sorted(set(cell.search.rungs))
            assert cell.search.rungs[-1] <= cell.search.candidates[0].rounds
            assert all(run.lr in grid.rates for run in cell.search.candidates)
    fedavg, fedavgm = (
        {c.search for c in asked if c.setting.get("algorithm") == name and c.setting.get("alpha") == 0 and c.search}
        for name in ("FedAvg", "FedAvgM")
    )
    for a in fedavg:
        if not grid.late or a.candidates[0].participation < hsu2019.MANY:  # trained once: momentum 0 is FedAvg
            assert any(set(a.candidates) <= set(b.candidates) for b in fedavgm)


def test_every_alpha_is_searched_where_a_round_is_cheap_and_four_where_it_is_dear():
    four = {0: 0, 0.05: 0.1, 0.1: 0.1, 0.2: 0.1, 0.5: 1, 1: 1, 10: 100, 100: 100}
    for fraction, at in (
        (0.05, {alpha: alpha for alpha in four}),
        (0.1, {alpha: alpha for alpha in four}),
        (0.4, four),
    ):
        asked = kept(hsu2019.figure5("cifar10", FULL), [f"C={fraction}", "E=1", "algorithm=FedAvgM"])
        assert {cell.setting["alpha"]: cell.setting["searched_at"] for cell in asked} == at
        assert len({cell.search for cell in asked}) == len(set(at.values()))
        for cell in asked:
            assert {run.partition.alpha for run in cell.search.candidates} == {cell.setting["searched_at"]}


def test_the_search_is_wide_and_ends_with_the_training_where_a_round_is_cheap():
    (cell, *_) = kept(hsu2019.figure5("cifar10", FULL), ["C=0.05", "E=1", "algorithm=FedAvgM"])
    pairs = [(run.lr, getattr(run.algorithm, "beta", 0)) for run in cell.search.candidates]
    assert all(0.99e-3 < lr / (1 - beta) < 1.01 for lr, beta in pairs)
    assert {(0.0003, 0.97), (0.0001, 0.99), (0.01, 0.0)} <= set(pairs)
    assert len(pairs) == 35
    assert cell.search.rungs[-1] == cell.runs[0].rounds == 10_000
    (one_class, many, *_) = kept(hsu2019.figure5("cifar10", FULL), ["C=0.4", "E=1", "algorithm=FedAvgM"])
    narrow = [(run.lr, getattr(run.algorithm, "beta", 0)) for run in many.search.candidates]
    assert set(narrow) < set(pairs)
    assert len(narrow) == 17
    assert all(0.99e-2 < lr / (1 - beta) < 1.01e-1 for lr, beta in narrow)
    late = [(run.lr, run.algorithm.beta) for run in one_class.search.candidates]
    assert len(late) == 6
    assert all(beta >= 0.97 and 0.0299 < lr / (1 - beta) < 0.334 for lr, beta in late)
    assert one_class.search.rungs[0] >= many.search.rungs[-1]


def test_published_numbers_stand_where_the_text_gives_them():
    asked = hsu2019.figure5("cifar10", FULL)
    given = {(c.setting["alpha"], c.setting["C"], c.setting["E"], c.setting["algorithm"]): c.paper for c in asked}
    assert {key for key, paper in given.items() if paper} == {
        (0.0, 0.05, 1, "FedAvg"),
        *((alpha, 0.05, 1, "FedAvgM") for alpha in hsu2019.ALPHAS),
    }
    assert given[0.0, 0.05, 1, "FedAvg"] == 0.35
    assert given[10.0, 0.05, 1, "FedAvgM"] == 0.75
    for scale in ("smoke", "quick"):  # another data set: nothing was published
        grid = hsu2019.SCALES[scale]
        shown = hsu2019.figure5("cifar10", grid) + hsu2019.figure3("cifar10", grid)
        assert {cell.paper for cell in shown} == {None}


def test_released_splits_are_used_by_their_names_and_not_searched_on(tmp_path):
    """Candidates keep a validation split aside, which a file of all examples cannot."""
    labels = load("digits").y
    for alpha in hsu2019.SCALES["smoke"].alphas:
        users = rng.stream(0, "users").integers(0, 100, len(labels))
        users[:100] = np.arange(100)
        lines = [f"{user},{i},{label}" for i, (user, label) in enumerate(zip(users, labels, strict=True))]
        (tmp_path / f"federated_train_alpha_{alpha:.2f}.csv").write_text("\n".join(["user_id,image_id,class", *lines]))
    grid = replace(hsu2019.SCALES["smoke"], splits=str(tmp_path))
    asked = hsu2019.figure5("cifar10", grid)[:1]
    assert asked[0].runs[0].partition.kind == "file"
    assert {run.partition.kind for run in asked[0].search.candidates} == {"dirichlet"}
    store = Store()
    cells.train(store, asked, lambda rows, rounds, label: rows)
    (found,) = cells.outcomes(store, asked)
    assert len(found.accuracies) == 1
    with pytest.raises(FedskewError, match=r"0 files are named \*alpha_0.05.csv"):
        hsu2019.runs(grid, 0.05, 0.05, 1)
    with pytest.raises(FedskewError, match="--splits goes with hsu2019"):
        Request.of("zhao2018", [], None, "smoke", None, splits=tmp_path)


def test_only_some_cells():
    request = Request.of("hsu2019", ["figure 5", "figure 3"], None, "full", 3, ["C=0.05", "E=1", "alpha=0"])
    assert [cell.setting["algorithm"] for cell in request.cells("figure 5")] == ["FedAvg", "FedAvgM"]
    assert {len(cell.runs) for cell in request.cells()} == {3}
    assert [c.setting["algorithm"] for c in request.cells("figure 3")] == ["FedAvg", "centralised SGD"]  # has no alpha
    two = Request.of("hsu2019", ["figure 5"], None, "full", 3, ["C=0.05", "alpha=0.1", "alpha=100", "E=1"])
    assert [cell.setting["alpha"] for cell in two.cells()] == [0.1, 0.1, 100.0, 100.0]
    everything = Request.of("hsu2019", [], None, "smoke", None, ["C=0.05"])  # Figure 1's cells have no C
    assert {name: bool(everything.cells(name)) for name in everything.names} == dict.fromkeys(everything.names, True)
    for only, says in (
        ("C", "write KEY=VALUE"),
        ("lambda=3", "a key of alpha, C, E"),
        ("C=3", "no cell is left of 128"),
    ):
        with pytest.raises(FedskewError, match=says):
            Request.of("hsu2019", ["figure 5"], None, "full", None, [only])


def rows_of(*accuracies, rounds):
    return [
        {"round": (i + 1) * rounds // len(accuracies), "accuracy": a, "loss": 1.0} for i, a in enumerate(accuracies)
    ]


def test_figure5_is_the_agreed_json_and_says_how_far_it_got():
    cell = replace(hsu2019.figure5("cifar10", replace(FULL, seeds=2))[1], search=None)
    cell = replace(
        cell, runs=tuple(Run(**r.model_dump() | {"lr": 3e-4, "algorithm": "fedavgm:0.97"}) for r in cell.runs)
    )
    done = Outcome(cell, ("a", "b"), (rows_of(0.7, rounds=10_000), rows_of(0.8, rounds=10_000)))
    begun = Outcome(cell, ("a", "b"), (rows_of(0.5, rounds=400), rows_of(0.6, 0.7, rounds=800)))
    shown = hsu2019_exhibits.exhibit_figure5([done, begun])
    keys = {"alpha", "C", "E", "algorithm", "beta", "lr", "rounds", "accuracy", "std", "seeds", "paper"}
    assert all(keys <= set(r) for r in shown.records)
    first, second = json.loads(json.dumps(shown.records))
    assert {key: first[key] for key in keys - {"std"}} == {
        "alpha": 0.0, "C": 0.05, "E": 1, "algorithm": "FedAvgM", "beta": 0.97, "lr": 3e-4,
        "rounds": 10_000, "accuracy": pytest.approx(0.75), "seeds": 2, "paper": 0.75,
    }  # fmt: skip
    assert (second["rounds"], second["accuracy"]) == (400, pytest.approx(0.55))  # as far as both of them are
    assert "30.1% to 76.9%" in shown.table.caption


def test_figure5_draws_its_methods_after_as_many_rounds():
    """A cell that was trained further is listed as far as it got, and drawn where the others of its panel are."""
    fedavg, fedavgm = (replace(c, search=None) for c in hsu2019.figure5("cifar10", replace(FULL, seeds=1))[:2])
    short = Outcome(fedavg, ("a",), (rows_of(0.3, rounds=2_000),))
    far = Outcome(fedavgm, ("b",), (rows_of(0.5, 0.7, rounds=4_000),))
    shown = hsu2019_exhibits.exhibit_figure5([short, far])
    assert [(r["rounds"], r["accuracy"]) for r in shown.records] == [(2_000, 0.3), (4_000, 0.6)]
    ((_, chart),) = shown.charts
    drawn = [r["value"] for rows in chart.to_dict()["datasets"].values() for r in rows if "value" in r]
    assert drawn == [0.3, 0.5]


def test_pairs_are_compared_after_as_many_rounds_in_as_many_populations():
    """One that Figure 5 trained to its end is read where the others of its panel are; one that diverged stops none."""
    short, whole, lost, other, never = hsu2019.figure6("cifar10", replace(FULL, seeds=2))[:5]
    other = replace(other, setting=other.setting | {"C": 0.1})
    diverged = [*rows_of(0.1, rounds=50), {"round": 60, "accuracy": 0.05, "loss": float("nan")}]
    all_of_it = rows_of(*(i / 100 for i in range(100)), rounds=10_000)
    found = [
        Outcome(short, ("a", ""), (rows_of(0.5, 0.6, rounds=200), [])),
        Outcome(whole, ("b", "c"), (all_of_it, rows_of(0.9, rounds=10_000))),
        Outcome(lost, ("d", ""), (diverged, [])),
        Outcome(other, ("e", "f"), (rows_of(0.7, rounds=10_000), rows_of(0.8, rounds=10_000))),
        Outcome(never, ("", ""), ([], [])),
    ]
    shown = {r["lr"]: r for r in hsu2019_exhibits.exhibit_figure6(found).records}
    assert [(r["rounds"], r["seeds"], r["accuracy"]) for _, r in sorted(shown.items())] == [
        (200, 1, pytest.approx(0.55)),
        (200, 1, pytest.approx(0.005)),
        (200, 1, 0.05),
        (10_000, 2, pytest.approx(0.75)),
        (0, 0, None),
    ]


def test_fractions_are_compared_after_as_many_rounds():
    """Figure 2 draws C = 0.05 and C = 0.4 in one chart, whichever was trained further."""
    low, high = (kept(hsu2019.figure2("cifar10", replace(FULL, seeds=1)), [f"C={c}", "E=1"]) for c in (0.05, 0.4))
    far = [Outcome(replace(c, search=None), ("a",), (rows_of(0.5, 0.9, rounds=10_000),)) for c in low]
    near = [Outcome(replace(c, search=None), ("b",), (rows_of(0.6, rounds=5_000),)) for c in high]
    shown = hsu2019_exhibits.exhibit_figure2([*far, *near])
    assert {(r["C"], r["rounds"], r["accuracy"]) for r in shown.records} == {(0.05, 5_000, 0.5), (0.4, 5_000, 0.6)}
    assert {cell.paper for cell in low} == {0.35, None}
    assert {r["paper"] for r in shown.records} == {None}  # that number is of all rounds
    assert len(shown.charts) == 1


def test_a_panel_waits_until_half_of_its_pairs_have_begun():
    """Figure 5 trains the chosen pair of Figure 6's other panels: one point of 48 is no picture of sensitivity."""
    cells = kept(hsu2019.figure6("cifar10", replace(FULL, seeds=1)), ["E=1"])
    high = [c for c in cells if c.setting["C"] == 0.4]
    for begun, shown in ((23, 0), (24, 48)):
        found = [Outcome(c, ("a",), (rows_of(0.5, rounds=100) if i < begun else [],)) for i, c in enumerate(high)]
        exhibit = hsu2019_exhibits.exhibit_figure6(found)
        assert (len(exhibit.records), len(exhibit.charts)) == (shown, bool(shown))


def test_learning_curves_are_of_the_fractions_that_were_trained():
    """The centralised line alone, under a fraction's name, would say nothing of it."""
    *curves, sgd = hsu2019.figure3("cifar10", replace(FULL, seeds=1))
    (begun, *_), untouched = (kept(curves, [f"C={c}"]) for c in (0.4, 0.05))
    found = [
        *(Outcome(cell, ("",), ([],)) for cell in untouched),
        Outcome(begun, ("a",), (rows_of(0.3, rounds=200),)),
        Outcome(replace(sgd, search=None), ("b",), (rows_of(0.8, rounds=10_000),)),
    ]
    shown = hsu2019_exhibits.exhibit_figure3(found)
    assert [(r.get("C"), r["rounds"], r["accuracy"]) for r in shown.records] == [(0.4, 200, 0.3), (None, 10_000, 0.8)]
    assert [name for name, _ in shown.charts] == ["C = 0.4"]


def test_every_remedy_gives_the_command_that_trains_it():
    asked = hsu2019.remedies("cifar10", replace(FULL, seeds=1))
    decided = [
        replace(c, runs=tuple(c.search.chosen(run, c.search.candidates[-1]) for run in c.runs), search=None)
        for c in asked
    ]
    found = [Outcome(c, ("a",), (rows_of(0.7 + i / 100, rounds=10_000),)) for i, c in enumerate(decided)]
    shown = hsu2019_exhibits.exhibit_remedies(found)
    assert [(r["best"], r["shared"]) for r in shown.records if "best" in r] == [
        ("without shared data", False),
        ("with 5 % shared", True),
    ]
    by_name = {c.setting["remedy"]: c.runs[0] for c in decided}
    for record in shown.records:
        words = shlex.split(record["command"])
        assert words[:2] == ["fedskew", "train"]
        given = {k.removeprefix("--").replace("-", "_"): v for k, v in zip(words[2::2], words[3::2], strict=True)}
        assert not set(given) & NOT_THE_RUNS
        assert Run(**given) == by_name[record["remedy"]]
    assert {c.runs[0].held_out for c in decided if c.setting["shared"]} == {0.05}
    published = kept(hsu2019.figure5("cifar10", replace(FULL, seeds=1)), ["C=0.05", "E=1", "algorithm=FedAvgM"])[0]
    assert (asked[0].search, asked[0].runs) == (published.search, published.runs)  # the paper's own, trained once
    mean = "mean of the last fifth of the rounds"
    alone, smoothed = (by_name[f"FedAvgM, {name}{mean}"].algorithm for name in ("", "label smoothing, "))
    assert (alone.swa, alone.smoothing, smoothed.swa, smoothed.smoothing) == (0.2, 0, 0.2, 0.1)
    assert alone.beta == smoothed.beta


def test_what_only_shows_at_the_end_is_searched_over_its_whole_length():
    def late(run: Run) -> bool:
        return run.lr_schedule == "cosine" or run.algorithm.swa > 0

    published, *others = hsu2019.remedies("cifar10", FULL)
    assert published.search.candidates[0].rounds == published.search.rungs[-1]
    for cell in others:
        assert (cell.search.candidates[0].rounds == cell.search.rungs[-1]) == late(cell.runs[0])
        assert {late(run) for run in cell.search.candidates} == {late(cell.runs[0])}
        assert cell.search.rungs[-1] >= 5_000 or not cell.runs[0].algorithm.swa
        assert cell.runs[0].rounds == 10_000
