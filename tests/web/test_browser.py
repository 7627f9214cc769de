"""The whole dashboard as a person meets it: chromium, a real server, real runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from dashboards import EVIL, dashboard
from playwright.sync_api import Browser
from windows import Visit, drawn, every, until

from fedskew.store import Store
from visits import sticks_out

VIEWS = ["runs", "compare", "clients", "drift", "whatif", "papers"]
DRAWN = {"compare": 2, "clients": 4, "drift": 3, "whatif": 3}

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed"),
]


@pytest.mark.parametrize(("width", "scheme"), [(1600, "light"), (400, "dark")])
def test_every_view_opens_whole(browser: Browser, address: str, store: Store, width: int, scheme: str) -> None:
    visit = Visit(browser, address, width=width, scheme=scheme)
    for view in VIEWS:
        page = visit.go(view, runs=every(store), beta="0.1")
        assert page.locator("h1").count() == 1
        drawn(page, DRAWN.get(view, 0))
        assert sticks_out(page, least=0.85) == []  # panels side by side grow in steps
        assert page.locator(".failed").count() == 0
        for chart in page.query_selector_all(".chart svg.marks"):
            assert len(chart.query_selector_all("path")) > 5
    table = visit.go("papers", name="table 3").locator(".tabled tbody tr")
    assert table.count() == 30
    assert visit.page.locator("td .missing").count() == 30
    visit.quiet()
    visit.page.close()


def test_a_name_that_is_a_script_is_text(visit: Visit, store: Store) -> None:
    page = visit.go("runs")
    assert page.locator(".run-name", has_text=EVIL).count() == 1
    assert page.locator("main img, main script").count() == 0
    (id,) = [e.id for e in store.runs() if e.name == EVIL]
    page = visit.go("compare", runs=id)
    until(lambda: page.locator(".chart svg.marks text", has_text="<script>alert(1)").count())
    until(lambda: EVIL in page.locator(".tabled tbody").inner_text())
    page.locator(".chart").first.locator(".mark-symbol.role-mark path").last.hover()
    page.wait_for_selector("#vg-tooltip-element.visible")
    assert EVIL[:25] in page.inner_text("#vg-tooltip-element")
    assert page.locator("main img, main script, #vg-tooltip-element img, #vg-tooltip-element script").count() == 0
    page = visit.go("clients", run=id)
    assert EVIL in page.locator("#which-run").inner_text()
    page = visit.go("drift", runs=every(store))
    until(lambda: page.locator(".chart svg.marks text", has_text="<script>alert(1)").count())


def test_the_keyboard_reaches_everything(visit: Visit) -> None:
    page = visit.go("runs")

    def at() -> str:
        return page.evaluate(  # type: ignore[no-any-return]
            "(e => e.getAttribute('aria-label') || e.textContent.trim() || e.tagName)(document.activeElement)"
        )

    reached = []
    for _ in range(26):
        page.keyboard.press("Tab")
        reached.append(at())
        width = page.evaluate("parseFloat(getComputedStyle(document.activeElement).outlineWidth)")
        assert width >= 2, at()  # the focus is seen
    assert reached[0] == "Skip to the content"
    assert [r for r in reached if r in ("Runs", "Compare", "Clients", "Drift", "What if", "Papers")] == [
        *("Runs", "Compare", "Clients", "Drift", "What if", "Papers")
    ]
    order = ["Colours", "Filter runs", "finished 6", "Pick all runs", "run", "Pick fedavg"]
    places = [next(i for i, r in enumerate(reached) if r.startswith(word)) for word in order]
    assert places == sorted(places)
    page.locator(".runs-table tbody input").first.focus()
    page.keyboard.press("Space")
    assert page.locator(".picked").inner_text().startswith("1 picked")
    page.locator(".picked button", has_text="Compare").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".view.compare")
    assert at() == "Compare"  # the new view's heading


def test_colours_follow_the_system_until_they_are_chosen(visit: Visit, store: Store) -> None:
    page = visit.go("compare", runs=every(store))
    drawn(page, 2)

    def brightness() -> tuple[int, int]:
        return tuple(  # type: ignore[return-value]
            page.evaluate(
                """() => [getComputedStyle(document.body).backgroundColor,
                          getComputedStyle(document.querySelector('svg.marks .role-axis-label text')).fill]
                         .map(c => c.match(/[0-9]+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0))"""
            )
        )

    paper, ink = brightness()
    assert paper - ink > 400
    page.emulate_media(color_scheme="dark")
    paper, ink = brightness()
    assert ink - paper > 400
    page.locator("button.theme").click()  # light, whatever the system says
    paper, ink = brightness()
    assert paper - ink > 400
    page.reload()
    drawn(page, 2)
    paper, ink = brightness()
    assert paper - ink > 400


def test_empty_states_and_a_store_that_comes_later(browser: Browser, tmp_path: Path, filled: Path) -> None:
    folder = tmp_path / "later"
    with dashboard(folder) as address:
        visit = Visit(browser, address)
        for view in VIEWS[:4]:
            page = visit.go(view)
            assert page.locator(".empty-title").count() == 1
        page = visit.go("runs")
        assert page.locator(".empty-title").inner_text() == "There is no store here yet."
        shutil.copytree(filled, folder)
        until(lambda: page.locator(".runs-table tbody tr").count() == 6)
        (folder / "wrong").write_bytes(b"nonsense" * 1000)
        (folder / "wrong").rename(folder / "fedskew.db")
        until(lambda: "not a fedskew store" in page.locator(".banner").inner_text())
        assert page.locator(".runs-table tbody tr").count() == 6  # as they were when they could be read
        shutil.rmtree(folder)
        shutil.copytree(filled, folder)
        until(lambda: page.locator(".banner").is_hidden() and page.locator(".runs-table tbody tr").count() == 6)
        visit.quiet()
        visit.page.close()
