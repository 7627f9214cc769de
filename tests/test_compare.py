"""Methods side by side: the same start, clients and examples for all, and numbers that add up."""

import statistics

import numpy as np
import pytest

from fedskew import Run, Store, compare, from_arrays, load, measure
from fedskew.errors import FedskewError
from fedskew.laboratory import Laboratory
from fedskew.sides import split

BASE = Run(model="softmax", partition="classes:1", clients=10, rounds=6, lr=0.05)


def trained(store, runs):
    return compare.trained(store, runs, lambda rows, rounds: rows)


def lab_of(run):
    return Laboratory.of(run, None, "cpu", "auto", "tf32")


def test_a_list_of_methods_keeps_their_options():
    assert compare.listed("fedavg, fedavgm:0.9,plain=true,scaffold;fedprox:0.1,mean=trimmed:0.2,swa=0.5") == [
        "fedavg",
        "fedavgm:0.9,plain=true",
        "scaffold",
        "fedprox:0.1,mean=trimmed:0.2,swa=0.5",
    ]
    with pytest.raises(FedskewError, match="names no method"):
        compare.listed(" , ")


def test_all_entrants_have_the_same_clients_and_the_same_start():
    field = compare.entrants(BASE, ["fedavg", "scaffold"], "beta=0.1,alpha=0.5", "rounds=2")
    assert [(str(e.run.algorithm), e.remedy) for e in field] == [
        ("fedavg", "iid clients"),
        ("fedavg", None),
        ("fedavg", "share beta=0.1,alpha=0.5"),
        ("fedavg", "share beta=0.1,alpha=0.5, warm-up rounds=2"),
        ("scaffold:1", None),
        ("scaffold:1", "share beta=0.1,alpha=0.5"),
        ("scaffold:1", "share beta=0.1,alpha=0.5, warm-up rounds=2"),
    ]
    data = load("digits")
    first = [list(part) for part in split(field[1].run, data)]
    assert all([list(part) for part in split(e.run, data)] == first for e in field[2:])
    everybody = np.concatenate(first)  # one-class clients of equal size leave a few examples out
    assert np.isin(everybody, np.concatenate(list(split(field[0].run, data)))).all()
    w = lab_of(field[0].run).initial[0]
    assert all((lab_of(e.run).initial[0][key] == leaf).all() for e in field for key, leaf in w.items())


def test_without_sharing_nothing_is_held_out_and_the_reference_can_go():
    (only,) = compare.entrants(BASE, ["fedavg"], None, None, reference=False)
    assert only.run == BASE
    assert only.run.held_out == 0


def test_the_table_adds_up():
    store = Store()
    field = compare.entrants(BASE, ["fedavg", "fedprox:1"], "beta=0.2", None)
    runs = [compare.seeded(e.run, 2) for e in field]
    assert [run.seed for run in runs[0]] == [0, 1]
    ids = trained(store, [run for each in runs for run in each])
    pairs = [(e, ids[2 * i : 2 * i + 2]) for i, e in enumerate(field)]
    found = compare.rows(store, pairs, target=None)
    assert [row["accuracy"] for row in found] == sorted((row["accuracy"] for row in found), reverse=True)
    scores = [measure.settled([a for _, a in store.evaluations(id)]) for id in ids[:2]]
    iid = next(row for row in found if row["remedy"] == "iid clients")
    assert iid["accuracy"] == pytest.approx(statistics.fmean(scores))
    assert iid["std"] == pytest.approx(statistics.stdev(scores))
    assert iid["target"] == pytest.approx(0.95 * iid["accuracy"])
    weights = 4 * (64 * 10 + 10)
    assert iid["bytes"] == 6 * 10 * 2 * weights
    shared = next(row for row in found if row["remedy"] == "share beta=0.2" and row["algorithm"] == "fedavg")
    examples = round(0.2 * sum(map(len, split(BASE.model_copy(update={"holdout": 0.2}), load("digits")))))
    data = load("digits")
    assert shared["bytes"] == iid["bytes"] + 10 * examples * (data.x[:1].nbytes + data.y[:1].nbytes)
    first = next(r for r, a in store.evaluations(pairs[2][1][0]) if a >= 0.3)
    second = next(r for r, a in store.evaluations(pairs[2][1][1]) if a >= 0.3)
    again = compare.rows(store, pairs, target=0.3)
    row = next(r for r in again if r["remedy"] == "share beta=0.2" and r["algorithm"] == "fedavg")
    assert row["rounds_to_target"] == (first + second) / 2
    assert all(r["rounds_to_target"] is None for r in compare.rows(store, pairs, target=1.0))
    text = compare.table(found, BASE).markdown()
    assert "share beta=0.2" in text
    assert "2 seeds" in text


def test_learning_rates_are_chosen_on_validation_and_never_on_test():
    """With the test labels made nonsense the choice stays the same; the runs say so themselves."""
    digits = load("digits")
    (entrant,) = compare.entrants(BASE, ["fedavg"], None, None, reference=False)
    runs = compare.candidates(entrant, [1e-4, 0.05, 0.1])
    assert {run.validation for run in runs} == {compare.VALIDATION}
    chosen = []
    for labels in (digits.y_test, (digits.y_test + 3) % 10):
        data = from_arrays(digits.x, digits.y, digits.x_test, labels, classes=digits.classes)
        store = Store()
        store = Store(store.folder / str(len(chosen)))
        ids = [store.create(run, data) for run in runs]
        for id in ids:
            list(store.advance(id, data=data))
        chosen.append(compare.tuned(store, entrant, runs, ids).run)
    assert chosen[0] == chosen[1]
    assert chosen[0].lr > 1e-4
    assert chosen[0].validation == 0


def test_a_method_that_diverges_is_last_and_says_so():
    store = Store()
    bad = compare.Entrant(Run(**BASE.model_dump() | {"lr": 1.0, "weight_decay": 1e4, "rounds": 40}), None)
    good = compare.Entrant(BASE, None)
    ids = trained(store, [bad.run, good.run])
    found = compare.rows(store, [(bad, ids[:1]), (good, ids[1:])], None)
    assert [row["diverged"] for row in found] == [0, 1]
    assert found[1]["accuracy"] == 0.0
