"""Many runs, long runs: 200 runs of 10,000 rows open at once, and a chart of 10,000 rounds stays smooth."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from bigstore import PEAK, fill
from dashboards import dashboard
from playwright.sync_api import Browser, Page

from fedskew.store import Store
from fedskew.web import views
from fedskew.web.rows import Reader

RUNS, ROWS = 200, 10_000

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed"),
]


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[str]]]:
    folder = tmp_path_factory.mktemp("big") / "store"
    yield folder, fill(folder, RUNS, ROWS)
    shutil.rmtree(folder)  # half a gigabyte


@pytest.fixture(scope="module")
def address(big: tuple[Path, list[str]]) -> Iterator[str]:
    with dashboard(big[0]) as address:
        yield address


def opened(page: Page, address: str) -> float:
    """Seconds until every run is in the table."""
    began = time.monotonic()
    page.goto(address)
    page.locator(".runs-table tbody tr").nth(RUNS - 1).wait_for()
    return time.monotonic() - began


def test_two_hundred_runs_open_in_under_two_seconds(browser: Browser, address: str) -> None:
    seconds = []
    for _ in range(3):  # the best of three: others may use the machine
        page = browser.new_page()
        seconds.append(opened(page, address))
        assert page.locator(".count").inner_text() == f"{RUNS} runs"
        page.close()
    assert min(seconds) < 2


def test_a_long_curve_keeps_its_shape_in_few_points(big: tuple[Path, list[str]]) -> None:
    folder, ids = big
    told = views.compare(Reader(Store(folder)), ids[:2], None, "test_loss")
    assert told["thinned"]
    (records,) = told["accuracy"]["data"].values()
    assert len(records) <= told["points"] <= 1000
    rounds = {r["round"]: r["value"] for r in records}
    assert {1, PEAK, ROWS} <= rounds.keys()  # its ends, and a peak of one round
    assert rounds[PEAK] == pytest.approx(0.99)
    for first in range(1, ROWS, 500):  # every stretch has its lowest and its highest point
        assert sum(first <= r < first + 500 for r in rounds) >= 2


def test_a_chart_of_ten_thousand_rounds_stays_smooth(
    browser: Browser, address: str, big: tuple[Path, list[str]]
) -> None:
    folder, ids = big
    page = browser.new_page()
    page.goto(f"{address}#/compare?runs={ids[0]},{ids[1]}")
    page.locator(".chart svg.marks").nth(1).wait_for()
    line = page.locator(".chart").first.locator(".mark-line path").first
    line.wait_for(state="attached")
    assert (line.get_attribute("d") or "").count("L") < 1000
    page.evaluate(
        """() => {
            window.gaps = [];
            let last = performance.now();
            const frame = (now) => { window.gaps.push(now - last); last = now; requestAnimationFrame(frame); };
            requestAnimationFrame(frame);
        }"""
    )
    drawn = {line.get_attribute("d")}
    best = []
    with closing(sqlite3.connect(folder / "fedskew.db", timeout=30, isolation_level=None)) as db:
        for i in range(1, 6):  # the run grows, as if it trained
            page.evaluate("() => { window.gaps = []; }")
            db.execute(
                """INSERT INTO rows
                   SELECT run, round + :i, 0.5, json_set(record, '$.round', round + :i, '$.accuracy', 0.5)
                   FROM rows WHERE run = :run AND round = :last""",
                {"i": i, "run": ids[0], "last": ROWS},
            )
            end = time.monotonic() + 60
            while (d := line.get_attribute("d")) in drawn or d is None:
                assert time.monotonic() < end
                time.sleep(0.05)
            drawn.add(d)
            gaps = sorted(page.evaluate("window.gaps"))
            best.append((gaps[-1], gaps[len(gaps) // 2]))
    longest, usual = map(min, zip(*best, strict=True))  # the best of five: others may use the machine
    assert usual < 50  # milliseconds; a frame of 60 a second takes 17
    assert longest < 500
    page.close()
