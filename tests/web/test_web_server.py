"""What the server answers, whatever happens to the store and whatever it is asked."""

from __future__ import annotations

import shutil
import sqlite3
import time
from typing import Any

import pytest
from dashboards import events, served

from fedskew.run import Run
from fedskew.store import Store, live
from fedskew.web.rows import Reader


def test_the_stream_tells_every_run_first(site):
    name, told = next(events(site.address))
    assert name == "runs"
    assert [run["id"] for run in told["runs"]] == [entry.id for entry in site.store.runs()]
    for run, entry in zip(told["runs"], site.store.runs(), strict=True):
        assert run["accuracy"] == entry.accuracy
        assert run["emd"] == site.store.records(entry.id)[-1]["emd"]
        assert (run["status"], run["round"], run["rounds"]) == ("finished", 6, 6)
        assert run["remedy"] == entry.remedy
        assert run["seconds_left"] is None  # nobody trains it
    assert told["store"]["there"]
    assert told["store"]["error"] is None


def test_time_left_is_the_pace_of_the_last_rounds(tmp_path):
    store = Store(tmp_path / "store")
    id = store.create(Run(model="softmax", rounds=9))
    rows = store.advance(id, device="cpu")
    for _ in range(3):
        next(rows)
    (standing,) = live.standings(store)  # while its lock is held
    seconds = [r["seconds"] for r in store.records(id)]
    assert standing.seconds_left == pytest.approx(6 * sum(seconds) / 3)
    rows.close()
    (standing,) = live.standings(store)
    assert standing.seconds_left is None


def test_a_store_may_come_later_break_and_go_away(tmp_path, filled):
    folder = tmp_path / "later"
    with served(folder) as site:
        told = events(site.address)
        name, first = next(told)
        assert name == "runs"
        assert first["runs"] == []
        assert not first["store"]["there"]
        shutil.copytree(filled, folder)
        while "changed" not in (change := next(told)[1]):
            pass
        assert len(change["changed"]) == 6
        (folder / "wrong").write_bytes(b"this is not a database, and never was " * 100)
        (folder / "wrong").rename(folder / "fedskew.db")
        broken: dict[str, Any] = {}
        while not broken.get("error"):
            _, change = next(told)
            assert "gone" not in change  # a page shows what it knows until the store can be read again
            broken = change.get("store") or broken
        assert "not a fedskew store" in broken["error"]
        assert site.ask("/api/compare?runs=00000000")[0] == 400
        assert "not a fedskew store" in site.ask("/api/drift")[1]["error"]
        shutil.rmtree(folder)
        gone: dict[str, Any] = broken
        while gone["there"] or gone["error"]:
            _, change = next(told)
            gone = change.get("store") or gone
        assert len(change["gone"]) == 6
        shutil.copytree(filled, folder)
        while "changed" not in (change := next(told)[1]):
            pass
        assert len(change["changed"]) == 6
        assert site.ask("/api/drift")[0] == 200


def test_a_damaged_page_of_the_store_is_one_line(tmp_path, filled):
    folder = tmp_path / "damaged"
    shutil.copytree(filled, folder)
    with sqlite3.connect(folder / "fedskew.db") as db:
        db.execute("UPDATE runs SET spec = '{'")
    db.close()
    with served(folder) as site:
        _, told = next(events(site.address))
        assert "cannot be read" in told["store"]["error"]
        status, answer = site.ask("/api/drift")
        assert status == 503
        assert "\n" not in answer["error"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/compare?runs=../../x",
        "/api/compare?runs=00000000'--",
        "/api/compare?runs=ab",
        "/api/compare?runs=00000000",
        "/api/compare?runs=&target=7",
        "/api/clients?run=%25",
        "/api/clients?run=../etc",
        "/api/clients",
        "/api/whatif?clients=0",
        "/api/whatif?clients=2000",
        "/api/whatif?partition=nonsense",
        "/api/whatif?partition=classes:99",
        "/api/whatif?partition=file:/x/passwd",
        "/api/whatif?data=/x/passwd.npz",
        "/api/whatif?beta=nan",
        "/api/papers/os?name=table%203",
        "/api/papers/zhao2018?name=table%2099",
        "/api/papers/zhao2018?name=table%203&scale=huge",
    ],
)
def test_nonsense_is_refused_in_one_line(site, path):
    status, told = site.ask(path)
    assert status == 400
    assert told["error"]
    assert "\n" not in told["error"]


def test_only_new_rows_are_read_unless_a_run_went_back(tmp_path):
    store = Store(tmp_path / "store")
    id = store.create(Run(model="softmax", rounds=6))
    rows = store.advance(id, device="cpu", checkpoint_seconds=0)
    reader = Reader(store)

    def read() -> list[tuple[int, float]]:
        return [(r["round"], r["accuracy"]) for r in reader.rows(store.find(id))]

    def kept() -> list[tuple[int, float]]:
        return [(r["round"], r["accuracy"]) for r in store.records(id)]

    for _ in range(3):
        next(rows)
    assert read() == kept()
    next(rows)
    assert read() == kept()
    assert len(kept()) == 4
    rows.close()
    with sqlite3.connect(store.path) as db:  # as a run does that goes on from its checkpoint on another machine
        db.execute("DELETE FROM rows WHERE round > 2")
        db.execute("UPDATE rows SET accuracy = 0.5, record = json_set(record, '$.accuracy', 0.5) WHERE round = 2")
    db.close()
    assert read() == kept()
    assert kept()[-1] == (2, 0.5)


def test_streams_do_not_keep_the_server_from_ending(filled):
    with served(filled) as site:
        stream = events(site.address)
        next(stream)
        began = time.monotonic()
    assert time.monotonic() - began < 8
    stream.close()
