"""Successive halving: who goes on, on what evidence, at what cost, and that a search cut off anywhere ends the same."""

import itertools
import math
from dataclasses import replace

import pytest

from fedskew import Run, Store, sweep
from fedskew.errors import FedskewError
from fedskew.papers.protocol import Cell, Search
from fedskew.reproduce import cells, moved, search
from fedskew.store import archive

SMALL = {"model": "softmax", "examples": 300, "partition": "classes:3", "clients": 5, "rounds": 12}
MAD = {"model": "mlp", "lr": 1e30}


def candidates(*rates, **more):
    return tuple(Run(**SMALL | {"validation": 0.2, "lr": lr} | more) for lr in rates)


def cell(*rates, rungs=(2, 6), **more):
    template = Run(**SMALL, algorithm="fedavgm:0.5,swa=0.5")
    return Cell("a", {"alpha": 0.0}, (template,), None, search=Search(candidates(*rates, **more), rungs))


def quiet(rows, rounds, label):
    return rows


def rounds_of(store):
    """Rounds trained, by learning rate; the chosen run, which has no validation split, apart."""
    return {("" if e.spec["validation"] else "chosen ") + f"{e.spec['lr']:g}": e.round for e in store.runs()}


def test_the_best_third_goes_on_and_the_best_of_all_is_trained():
    store, asked = Store(), cell(1e-5, 0.01, 0.5, 0.05)
    before = cells.cost(store, [asked], probe=False)
    cells.train(store, [asked], quiet)
    assert rounds_of(store) == {"1e-05": 2, "0.01": 2, "0.5": 6, "0.05": 6, "chosen 0.5": 12}
    assert before.rounds == sum(rounds_of(store).values())
    assert before.runs == 5
    assert cells.cost(store, [asked], probe=False).rounds == 0
    (found,) = cells.outcomes(store, [asked])
    run = found.cell.runs[0]
    assert (run.lr, str(run.algorithm), run.validation) == (0.5, "fedavg,swa=0.5", 0)  # swa is the cell's own
    assert found.so_far() == (12, found.accuracies)


def test_whoever_is_left_alone_has_won():
    """Of two candidates one goes on, and no later rung could say anything against it."""
    store, asked = Store(), cell(0.01, 0.5)
    before = cells.cost(store, [asked], probe=False)
    cells.train(store, [asked], quiet)
    assert rounds_of(store) == {"0.01": 2, "0.5": 2, "chosen 0.5": 12}
    assert before.rounds == sum(rounds_of(store).values())


def test_a_rung_is_judged_by_what_was_known_at_it():
    """A candidate that another search has brought further is judged by its rows up to the rung only."""
    store, asked = Store(), cell(0.05, 0.3)
    _, groups = sweep.plan(store, asked.search.candidates[:1], until=6)
    list(sweep.train(store, groups))
    cells.choose(store, [asked], quiet)
    scores = search.standing(store, asked.search).scores
    entry = store.same(asked.search.candidates[0])
    assert scores[asked.search.candidates[0]] == (2, store.evaluations(entry.id)[1][1])
    with pytest.raises(FedskewError, match="validation"):
        Search((Run(**SMALL),), (2,))
    with pytest.raises(FedskewError, match="round 2 is a rung but no evaluation"):
        Search(candidates(0.1, eval_every=4), (2,))


def test_a_candidate_that_diverges_has_lost():
    store, asked = Store(), cell(1e30, 0.1, model="mlp")
    cells.choose(store, [asked], quiet)
    now = search.standing(store, asked.search)
    assert now.best.lr == 0.1
    assert now.scores[asked.search.candidates[0]] == (2, 0.0)


def test_what_is_not_decided_is_not_shown():
    store, asked = Store(), cell(0.1, 0.5)
    _, groups = sweep.plan(store, asked.runs)
    list(sweep.train(store, groups))  # the cell's run as it is before anything is chosen is there already
    (found,) = cells.outcomes(store, [asked])
    assert (found.decided, found.ids, found.so_far()) == (False, ("",), (0, []))


def test_a_search_that_is_cut_off_anywhere_ends_the_same(tmp_path):
    """Stopped after every few rows, moved in pieces with too little room, gone on with elsewhere, again and again."""
    asked = replace(cell(0.02, 0.05, 0.1, 0.2), runs=(Run(**SMALL, algorithm="fedavgm:0.9"), Run(**SMALL, seed=1)))
    whole = Store(tmp_path / "whole")
    cells.train(whole, [asked], quiet, checkpoint_seconds=math.inf)

    class Cut(Exception):
        pass

    def cutting(rows, rounds, label):
        for _ in itertools.islice(rows, 5):
            yield
        if next(rows, None) is not None:
            rows.close()
            raise Cut

    store, packed = Store(tmp_path / "0"), tmp_path / "part.zip"
    for i in itertools.count(1):
        try:
            cells.train(store, [asked], cutting, at_once=2, checkpoint_seconds=math.inf)
        except Cut:
            (all_of_it,) = moved.pack(store, [asked], packed)
            size = all_of_it.stat().st_size
            room = size // 2 if i == 2 else size  # not all checkpoints fit: a run begins again
            pieces = moved.pack(store, [asked], packed, piece=1_000, most=room)
            assert len(pieces) > 1
            assert max(piece.stat().st_size for piece in pieces) <= 1_000
            assert (sum(piece.stat().st_size for piece in pieces) < size) == (i == 2)
            store = Store(tmp_path / str(i))
            archive.unpack(store, packed)
            for piece in pieces:
                piece.unlink()
        else:
            break
    assert i > 4
    (cut,), (straight,) = cells.outcomes(store, [asked]), cells.outcomes(whole, [asked])
    assert cut.cell == straight.cell
    assert search.standing(store, asked.search).scores == search.standing(whole, asked.search).scores
    assert [[(r["loss"], r["accuracy"]) for r in rows] for rows in cut.records] == [
        [(r["loss"], r["accuracy"]) for r in rows] for rows in straight.records
    ]


def test_a_loser_travels_without_its_weights(tmp_path):
    store, asked = Store(tmp_path / "here"), cell(1e-5, 0.01, 0.5, 0.05)
    cells.choose(store, [asked], quiet)
    (packed,) = moved.pack(store, [asked], tmp_path / "runs.zip")
    there = Store(tmp_path / "there")
    assert len(archive.unpack(there, packed)) == 4
    assert [there.state(entry.id) for entry in there.runs()] == [(0, None)] * 4
    assert search.standing(there, asked.search) == search.standing(store, asked.search)


def test_runs_can_be_shown_before_they_are_over():
    store = Store()
    asked = Cell("a", {}, tuple(Run(**SMALL, seed=seed) for seed in range(2)), None)
    cells.train(store, [asked], quiet, until=7)
    (found,) = cells.outcomes(store, [asked])
    assert (found.so_far()[0], len(found.so_far()[1]), found.accuracies) == (7, 2, [])
    _, groups = sweep.plan(store, asked.runs[:1])
    list(sweep.train(store, groups))
    (found,) = cells.outcomes(store, [asked])
    assert found.so_far() == (12, found.accuracies)  # one whole run counts more than two halves
    lost = Cell("a", {}, (Run(**SMALL | MAD), Run(**SMALL | MAD | {"lr": 0.1})), None)
    cells.train(store, [lost], quiet, until=3)
    (found,) = cells.outcomes(store, [lost])
    rounds, accuracies = found.so_far()
    assert rounds == 3
    assert accuracies[1] == found.records[0][-1]["accuracy"]
