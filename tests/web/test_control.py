"""Start, stop and resume from the page: real processes, and nothing that was not allowed."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from dashboards import Site, events, served

from fedskew.errors import FedskewError
from fedskew.web.control import Wanted
from stopped import ENDLESS

TOKEN = "a-token-of-enough-length"
LONG = {
    "data": "digits",
    "model": "softmax",
    "partition": "classes:1",
    "clients": 10,
    "rounds": ENDLESS,
    "name": "long",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory):
    with served(Path(tmp_path_factory.mktemp("control")) / "store", token=TOKEN, control=True) as site:
        yield site


def wait(what: Callable[[], bool], seconds: float = 40) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_run_is_started_stopped_with_its_rounds_saved_and_resumed(site: Site):
    status, told = site.ask("/api/runs", body=LONG)
    assert status == 200
    id = told["run"]
    find = site.store.find
    wait(lambda: find(id).round >= 5)
    assert find(id).status == "running"
    assert find(id).name == "long"
    assert site.ask(f"/api/runs/{id}/resume", body={})[0] == 400  # it runs
    assert site.ask(f"/api/runs/{id}/stop", body={})[0] == 200
    wait(lambda: find(id).status == "interrupted")
    stopped = find(id).round
    assert site.store.checkpoints(id)[0]["round"] == stopped  # nothing was lost
    wait(lambda: site.ask(f"/api/runs/{id}/stop", body={})[0] == 400)  # its process has ended
    assert site.ask(f"/api/runs/{id}/resume", body={})[0] == 200
    wait(lambda: find(id).round > stopped)
    assert site.ask(f"/api/runs/{id}/stop", body={})[0] == 200
    wait(lambda: find(id).status == "interrupted")


def test_a_run_that_cannot_go_on_says_why(site: Site):
    (id,) = [entry.id for entry in site.store.runs()]
    with sqlite3.connect(site.store.path) as db:
        db.execute("UPDATE runs SET fingerprint = json_set(fingerprint, '$.data', 'another')")
    db.close()
    assert site.ask(f"/api/runs/{id}/resume", body={})[0] == 200
    told = events(site.address, headers=site.headers)
    failed = next(told)[1]["store"]["failed"]
    while id not in failed:
        failed = (next(told)[1].get("store") or {}).get("failed", {})
    assert "data changed since its start" in failed[id]
    told.close()


def test_a_mistake_is_said_in_one_line(site: Site):
    status, told = site.ask("/api/runs", body={"partition": "classes:99"})
    assert status == 400
    assert told["error"].startswith("classes:99")
    assert "\n" not in told["error"]


@pytest.mark.parametrize(
    "wanted",
    [
        {"model": "os:system"},
        {"model": "../x"},
        {"partition": "file:/x/passwd"},
        {"partition": " file:x"},
        {"data": "/x/passwd.npz"},
        {"start": "x.safetensors"},
        {"rounds": 0},
        {"config": "x.toml"},
        {"name": "x" * 201},
    ],
)
def test_what_would_read_or_run_any_file_is_refused(site: Site, wanted: dict[str, object]):
    before = site.store.runs()
    status, told = site.ask("/api/runs", body=wanted)
    assert status == 400
    assert told["error"]
    assert site.store.runs() == before


def test_a_value_never_becomes_an_option():
    found = Wanted(name="--store=/x", algorithm="--help").arguments()
    assert found == ["--name=--store=/x", "--algorithm=--help"]
    with pytest.raises(FedskewError, match="plain name"):
        Wanted(model="--help x").arguments()


def test_control_needs_the_token_and_the_pages_own_origin(site: Site):
    open_site = Site(site.address, site.store)
    assert open_site.ask("/api/runs", body=LONG)[0] == 401
    assert site.ask("/api/runs", body=LONG, origin="http://localhost.evil.example")[0] == 403
    assert site.ask("/api/runs/00000000/stop", body={})[0] == 400
    assert site.ask("/api/runs/..%2f..%2fx/resume", body={})[0] in (400, 404)


def test_what_was_started_ends_with_the_dashboard(tmp_path: Path):
    with served(tmp_path / "store", token=TOKEN, control=True) as site:
        id = site.ask("/api/runs", body=LONG)[1]["run"]
        wait(lambda: site.store.find(id).round >= 2)
    entry = site.store.find(id)
    assert entry.status == "interrupted"
    assert site.store.checkpoints(id)[0]["round"] == entry.round
