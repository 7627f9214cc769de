"""What the server answers for each view: the same numbers as the library."""

from __future__ import annotations

import shutil
import sqlite3

import numpy as np
import pytest
from dashboards import EVIL, events, served

from fedskew import measure, prepare, rng
from fedskew.data import datasets
from fedskew.data.partition import parse_partition
from fedskew.laboratory import Laboratory
from fedskew.run import Run
from fedskew.store import Store
from fedskew.web import views


def test_what_if_is_what_training_meets(site):
    """EMD before and after, and the bytes, are those of the run that the page proposes."""
    run = Run(model="softmax", partition="dirichlet:0.3", clients=12, share="beta=0.1,alpha=0.5", seed=3)
    lab = Laboratory.of(run, None, "cpu", "auto", "tf32")
    _, told = site.ask("/api/whatif?partition=dirichlet:0.3&clients=12&beta=0.1&alpha=0.5&seed=3")
    assert told["facts"]["sharing"] == lab.sharing()
    assert told["facts"]["emd"]["mean"] == pytest.approx(lab.sharing()["emd_before"], abs=1e-12)
    assert told["facts"]["sizes"]["min"] == min(len(part) for part in lab.parts)
    labels = datasets.load_labels("digits")
    parts = parse_partition("classes:3", 7)(labels.y, rng.stream(0, "partition"))
    _, plain = site.ask("/api/whatif?partition=classes:3&clients=7")
    assert plain["facts"]["emd"]["mean"] == pytest.approx(measure.emd(measure.counts(labels.y, parts, 10)).mean())
    assert "sharing" not in plain["facts"]
    assert prepare.held_out(None, None) == 0


def test_seeds_are_one_line_with_a_band(site):
    one_class = [e.id for e in site.store.runs() if e.partition == "classes:1" and not e.remedy]
    _, told = site.ask(f"/api/compare?runs={','.join(one_class)}")
    (name,) = told["accuracy"]["data"]
    records = told["accuracy"]["data"][name]
    assert {r["run"] for r in records} == {"fedavg, classes:1"}
    for record in records:
        values = [site.store.records(id)[record["round"] - 1]["accuracy"] for id in one_class]
        assert record["low"] == min(values)
        assert record["high"] == max(values)
        assert record["value"] == pytest.approx(np.mean(values))


def test_the_table_can_be_copied_and_names_stay_names(site):
    ids = [entry.id for entry in site.store.runs()]
    _, told = site.ask(f"/api/compare?runs={','.join(ids)}&target=0.2")
    table = told["table"]
    assert told["target"] == 0.2
    assert len(table["rows"]) == 4
    assert told["points"] == views.MOST_POINTS // 4  # shared out among the lines
    lines = table["csv"].splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("run,")
    assert EVIL.replace('"', '""') in table["csv"]
    assert table["markdown"].count("\n|") == 5
    assert "<script>" not in table["markdown"]
    best = max(float(line.rsplit(",", 7)[1]) for line in lines[1:])
    _, usual = site.ask(f"/api/compare?runs={','.join(ids)}")
    assert usual["target"] == pytest.approx(0.95 * best)


def test_a_cell_that_a_spreadsheet_would_run_is_text():
    from fedskew.report.tables import Column, Table
    from fedskew.web.drawing import csv

    rows = [{"run": "=1+2", "n": -3}, {"run": "@x", "n": None}]
    assert csv(Table("", [Column("run", ""), Column("n", "")], rows)) == "run,n\n'=1+2,-3\n'@x,\n"


def test_clients_are_those_of_the_run(site):
    (id,) = [e.id for e in site.store.runs() if e.remedy]
    _, told = site.ask(f"/api/clients?run={id}")
    last, first = site.store.records(id)[-1], site.store.records(id)[0]
    assert told["facts"]["emd"] == pytest.approx(last["emd"])
    assert told["prepared"] == first["prepared"]
    assert told["facts"]["examples"] == last["examples"]
    bars = told["population"]["data"]["population"]
    assert sum(r["examples"] for r in bars) == last["examples"]
    heat = told["per_class"]["data"]["per_class"]
    scores = {r["class"]: r["accuracy"] for r in heat if r["round"] == 6}
    assert list(scores.values()) == last["per_class"]


def test_a_run_whose_data_is_not_here_still_shows_what_it_measured(site, tmp_path, filled, monkeypatch):
    folder = tmp_path / "moved"
    shutil.copytree(filled, folder)
    with sqlite3.connect(folder / "fedskew.db") as db:
        db.execute("UPDATE runs SET data = 'mnist', spec = json_set(spec, '$.data', 'mnist')")
    db.close()
    monkeypatch.setenv("FEDSKEW_DATA", str(tmp_path))
    with served(folder) as there:
        _, told = there.ask(f"/api/clients?run={there.store.runs()[0].id}")
        assert "mnist" in told["error"]
        assert told["population"] is None
        assert told["per_class"]


def test_drift_has_both_definitions_by_layer_and_the_chain(site):
    ids = [e.id for e in site.store.runs()]
    _, told = site.ask(f"/api/drift?runs={','.join(ids)}")
    assert (told["runs"], told["measured"]) == (6, 5)
    chain = told["chain"]["data"]["chain"]
    for record in chain:
        rows = site.store.records(record["id"])
        assert record["emd"] == rows[-1]["emd"]
        assert record["accuracy"] == pytest.approx(measure.settled([r["accuracy"] for r in rows if r["accuracy"]]))
        total = rows[-1]["divergence"] and rows[-1]["divergence"]["relative"]["total"]
        assert record["divergence"] == (pytest.approx(total) if total else None)
    (even,) = [e.id for e in site.store.runs() if e.partition == "iid" and e.spec["seed"] == 0]
    _, one = site.ask(f"/api/drift?runs={even}")
    for definition in ("relative", "rms"):
        (records,) = one[definition]["data"].values()
        for row in site.store.records(even):
            found = {r["layer"]: r["value"] for r in records if r["round"] == row["round"]}
            measured = row["divergence"][definition]
            assert found == pytest.approx({"all layers": measured["total"]} | measured["layers"])
    _, every = site.ask("/api/drift")
    assert every["runs"] == 6
    assert every["relative"] is None


def test_papers_show_published_numbers_and_what_is_missing(site):
    _, papers = site.ask("/api/papers")
    assert {"zhao2018", "lahoti"} <= {p["paper"] for p in papers}
    _, told = site.ask("/api/papers/zhao2018?name=table%203")
    assert told["scale"] == "full"  # nothing is trained: the paper's own size
    assert (told["trained"], told["cells"]) == (0, 30)
    assert all(told["table"]["missing"])
    assert any("43.85%" in row for row in told["table"]["rows"])
    assert told["command"] == "fedskew reproduce zhao2018 --table 3 --scale full"


def test_a_trained_cell_of_a_paper_is_shown(tmp_path):
    from fedskew.papers import zhao2018

    store = Store(tmp_path / "store")
    cell = zhao2018.table3("mnist", zhao2018.SCALES["smoke"])[1]
    (run,) = cell.runs
    for _ in store.advance(store.create(run), device="cpu"):
        pass
    with served(store.folder) as site:
        _, told = site.ask("/api/papers/zhao2018?name=table%203")
    assert told["scale"] == "smoke"
    assert told["trained"] == told["cells"] - told["table"]["missing"].count(True) >= 1
    row = told["table"]["rows"][told["table"]["missing"].index(False)]
    accuracies = [r["accuracy"] for r in store.records(store.runs()[0].id) if r["accuracy"] is not None]
    assert f"{measure.settled(accuracies):.2%}" in row


def test_a_run_that_diverged_is_drawn_up_to_its_end(tmp_path):
    store = Store(tmp_path / "store")
    id = store.create(Run(model="mlp", partition="classes:1", clients=10, lr=1e8, rounds=4, divergence=True))
    rows = list(store.advance(id, device="cpu"))
    assert rows[-1].diverged
    with served(store.folder) as site:
        _, told = next(events(site.address))
        assert told["runs"][0]["status"] == "diverged"
        for path in (f"/api/compare?runs={id}", f"/api/drift?runs={id}", f"/api/clients?run={id}", "/api/drift"):
            assert site.ask(path)[0] == 200
        assert site.ask(f"/api/compare?runs={id}")[1]["table"]["rows"][0][2] == "0.0%"
