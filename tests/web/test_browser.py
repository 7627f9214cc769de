"""The dashboard as a person meets it: chromium, a real server, real runs."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboards import EVIL, dashboard, trained
from playwright.sync_api import Browser, Page

from fedskew import measure, sides
from fedskew.data import datasets
from fedskew.data.partition import parse_partition
from fedskew.prepare import Share
from fedskew.store import Store
from visits import Watched

VIEWS = ["runs", "compare", "clients", "drift", "whatif", "papers"]
DRAWN = {"compare": 2, "clients": 4, "drift": 3, "whatif": 3}

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed"),
]


class Visit(Watched):
    """The dashboard in a window of its own."""

    def __init__(self, browser: Browser, address: str, *, width: int = 1600, scheme: Any = "light") -> None:
        super().__init__(browser, width, scheme)
        self.address = address

    def go(self, view: str, **params: str) -> Page:
        query = "&".join(f"{key}={value}" for key, value in params.items())
        self.page.goto(f"{self.address}#/{view}?{query}")
        self.page.wait_for_selector(f".view.{view}")
        self.page.wait_for_selector(".loading", state="detached")
        return self.page

    def quiet(self) -> None:
        assert self.noise == []
        own = self.address.split("?")[0]
        assert [url for url in self.requests if not url.startswith((own, "data:", "blob:"))] == []


def until(what: Callable[[], Any], seconds: float = 30.0) -> Any:
    """What it gives as soon as that is true; the page's own policy forbids Playwright's waiting by eval."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, filled: Path) -> Store:
    folder = tmp_path_factory.mktemp("browser") / "store"
    shutil.copytree(filled, folder)
    return Store(folder)


@pytest.fixture(scope="module")
def address(store: Store) -> Iterator[str]:
    with dashboard(store.folder) as address:
        yield address


@pytest.fixture
def visit(browser: Browser, address: str) -> Iterator[Visit]:
    visit = Visit(browser, address)
    yield visit
    visit.quiet()
    visit.page.close()


def every(store: Store) -> str:
    return ",".join(entry.id for entry in store.runs())


def drawn(page: Page, charts: int) -> None:
    until(lambda: page.locator(".chart svg.marks").count() == charts)


def sticks_out(page: Page) -> list[str]:
    """What is wider than the window or drawn outside its own frame."""
    return page.evaluate(  # type: ignore[no-any-return]
        """() => {
            const found = document.documentElement.scrollWidth > innerWidth ? ['page'] : [];
            for (const svg of document.querySelectorAll('.chart svg.marks')) {
                const frame = svg.getBoundingClientRect(), box = svg.closest('.chart').clientWidth;
                if (frame.width > box + 1) found.push(`${frame.width} in ${box}`);
                for (const part of svg.querySelectorAll('text')) {
                    const r = part.getBoundingClientRect();
                    if (r.bottom > frame.bottom + 1 || r.right > frame.right + 1 || r.left < frame.left - 1)
                        found.push(part.textContent);
                }
            }
            return found;
        }"""
    )


@pytest.mark.parametrize(("width", "scheme"), [(1600, "light"), (400, "dark")])
def test_every_view_opens_whole(browser: Browser, address: str, store: Store, width: int, scheme: str) -> None:
    visit = Visit(browser, address, width=width, scheme=scheme)
    for view in VIEWS:
        page = visit.go(view, runs=every(store), beta="0.1")
        assert page.locator("h1").count() == 1
        drawn(page, DRAWN.get(view, 0))
        assert sticks_out(page) == []
        assert page.locator(".failed").count() == 0
        for chart in page.query_selector_all(".chart svg.marks"):
            assert len(chart.query_selector_all("path")) > 5
    table = visit.go("papers", name="table 3").locator(".tabled tbody tr")
    assert table.count() == 30
    assert visit.page.locator("td .missing").count() == 30
    visit.quiet()
    visit.page.close()


def test_a_run_that_starts_now_appears_and_its_curve_grows(visit: Visit, store: Store) -> None:
    page = visit.go("runs")
    before = page.locator(".runs-table tbody tr").count()
    page.evaluate("() => { window.mark = 1; }")
    process = trained(store.folder, "--partition", "classes:1", "--rounds", "3000", "--name", "just started")
    try:
        row = page.locator(".runs-table tbody tr", has_text="just started")
        row.wait_for(timeout=40_000)
        assert page.locator(".runs-table tbody tr").count() == before + 1
        until(lambda: row.locator(".state").inner_text() == "running")
        first = row.locator(".rounds").inner_text()
        until(lambda: row.locator(".rounds").inner_text() != first)  # the table is live, too
        until(lambda: row.locator(".c-seconds_left").inner_text() not in ("–", "…"))
        row.locator("input[type=checkbox]").click()
        page.locator(".picked button", has_text="Compare").click()
        line = page.locator(".chart").first.locator(".mark-line path").first
        line.wait_for(state="attached")
        svg = page.locator(".chart svg.marks").first
        svg.evaluate("svg => { svg.mark = 1; }")
        short = line.get_attribute("d")
        grown = until(lambda: (d := line.get_attribute("d")) != short and d)
        until(lambda: line.get_attribute("d") != grown)
        assert svg.evaluate("svg => svg.mark") == 1  # the same picture, not a new one: nothing flickers
        assert page.evaluate("window.mark") == 1  # the same page
    finally:
        process.terminate()
        process.wait()
    until(lambda: page.locator(".link[data-state=live]").count())
    page = visit.go("runs")
    until(lambda: page.locator("tr", has_text="just started").locator(".state").inner_text() == "interrupted")
    store.delete(next(e.id for e in store.runs() if e.name == "just started"))
    until(lambda: page.locator(".runs-table tbody tr").count() == before)


def test_choosing_runs_changes_the_chart(visit: Visit, store: Store) -> None:
    names = [e.id for e in store.runs() if e.partition == "iid"]
    page = visit.go("compare", runs=",".join(names))
    legend = page.locator(".chart").first.locator(".role-legend-label text")
    until(lambda: legend.all_text_contents() == ["fedavg, iid"])
    page.get_by_role("button", name="Choose runs").click()
    page.wait_for_selector(".runs-table")
    share = page.locator(".runs-table tbody tr", has_text="share beta").first
    share.get_by_role("checkbox").check()
    assert page.locator(".picked").inner_text().startswith("3 picked")
    page.locator(".picked button", has_text="Compare").click()
    until(lambda: sorted(legend.all_text_contents()) == ["fedavg, iid", "fedavg, share, classes:1"])
    rows = page.locator(".tabled tbody tr")
    assert rows.count() == 2
    page.locator(".tag", has_text="share").get_by_role("button").click()
    until(lambda: legend.all_text_contents() == ["fedavg, iid"])
    until(lambda: rows.count() == 1)
    page.go_back()
    page.wait_for_selector(".runs-table")


def test_rounds_to_target_and_copying(browser: Browser, address: str, store: Store) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    even = [e.id for e in store.runs() if e.partition == "iid"]
    page.goto(f"{address}#/compare?runs={','.join(even)}")
    page.wait_for_selector(".tabled tbody tr")
    at = page.locator(".tabled th").all_inner_texts().index("rounds to target")
    reached = []
    for target in ("20", "99.9"):
        page.locator("#target").fill(target)
        page.locator("#target").press("Enter")
        until(lambda target=target: f"{float(target):.1f}%" in page.locator(".tabled .note").inner_text())
        reached.append(page.locator(".tabled tbody td").nth(at).inner_text())
    expected = [
        next(r["round"] for r in store.records(id) if r["accuracy"] is not None and r["accuracy"] >= 0.2) for id in even
    ]
    assert reached == [f"{sum(expected) / 2:.0f}", "–"]
    for kind, sign in (("Markdown", "| run |"), ("CSV", "run,")):
        page.get_by_role("button", name=f"Copy as {kind}").click()
        until(lambda sign=sign: page.evaluate("navigator.clipboard.readText()").startswith(sign))
    context.close()


def test_sliders_show_the_emd_that_python_computes(visit: Visit) -> None:
    page = visit.go("whatif", kind="dirichlet", value="0.5")
    labels = datasets.load_labels("digits")

    def shown(name: str) -> str:
        return page.locator(f"[data-fact={name}]").inner_text()

    def moved(name: str, value: float) -> None:
        page.locator(f"input[name={name}]").fill(str(value))  # a range input takes a value as a drag gives it

    def expected(partition: str, clients: int, share: Share | None = None) -> tuple[str, str]:
        held = 0.2 if share else 0.0
        division = sides.Division(parse_partition(partition, clients), held_out=held, share=share)
        parts = sides.split(division, labels)
        before = measure.emd(measure.counts(labels.y, parts, 10)).mean()
        told = sides.sharing(division, labels.y, parts, sides.shared_set(division, labels, parts), 10, 72)
        return f"{before:.3f}", f"{told['emd']:.3f}" if told else "–"

    until(lambda: (shown("emd-before"), shown("emd-after")) == expected("dirichlet:0.5", 10))
    assert float(page.locator("input[name=value]").input_value()) == pytest.approx(math.log10(0.5), abs=0.01)
    moved("value", -1)  # of the logarithm
    until(lambda: (shown("emd-before"), shown("emd-after")) == expected("dirichlet:0.1", 10))
    moved("clients", 25)
    until(lambda: (shown("emd-before"), shown("emd-after")) == expected("dirichlet:0.1", 25))
    moved("beta", 0.1)
    moved("alpha", 0.5)
    share = Share(beta=0.1, alpha=0.5)
    until(lambda: (shown("emd-before"), shown("emd-after")) == expected("dirichlet:0.1", 25, share))
    assert shown("bytes").endswith("kB")
    page.locator("select[name=kind]").select_option("classes")
    moved("value", 1)
    until(lambda: (shown("emd-before"), shown("emd-after")) == expected("classes:1", 25, share))
    assert "--partition classes:1 --clients 25 --share beta=0.1,alpha=0.5" in page.locator("code").inner_text()
    moved("clients", 200)  # too many for ten classes of these digits: said, not drawn
    page.locator("select[name=kind]").select_option("emd")
    until(lambda: page.locator(".trouble .failed").count() == 1)
    visit.noise[:] = [n for n in visit.noise if "400 (Bad Request)" not in n]  # chromium's own note of that answer


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


def test_a_brush_in_one_panel_shows_in_the_others(visit: Visit, store: Store) -> None:
    page = visit.go("drift")
    panels = page.locator(".chart").first.locator(".mark-symbol.role-mark")
    until(lambda: panels.count() == 3)

    def faded(panel: int) -> int:
        dots = panels.nth(panel).locator("path").all()
        return sum(float(d.get_attribute("opacity") or d.get_attribute("fill-opacity") or 1) < 0.5 for d in dots)

    assert [faded(i) for i in range(3)] == [0, 0, 0]
    area = page.locator(".chart").first.locator(".mark-group.role-scope .background").first.bounding_box()
    assert area is not None
    page.mouse.move(area["x"] + 2, area["y"] + 2)
    page.mouse.down()
    page.mouse.move(area["x"] + area["width"] / 2, area["y"] + area["height"] - 2, steps=5)
    page.mouse.up()
    until(lambda: faded(0) > 0 and faded(1) == faded(0))  # the same runs fade; the third panel has one more run
    assert faded(2) >= faded(0)


def test_filter_sort_and_states(visit: Visit, store: Store) -> None:
    page = visit.go("runs")
    rows = page.locator(".runs-table tbody tr")
    assert rows.count() == 6
    page.get_by_role("searchbox").fill("classes:1 share")
    assert rows.count() == 1
    assert page.locator(".count").inner_text() == "1 of 6 runs"
    page.get_by_role("searchbox").fill("nothing has this name")
    assert page.locator(".empty-title").inner_text() == "No run fits the filter."
    page.get_by_role("button", name="Show all runs").click()
    assert rows.count() == 6

    def accuracies() -> list[float]:
        return [float(text.rstrip("%")) for text in page.locator("td.c-accuracy").all_inner_texts()]

    page.get_by_role("button", name="accuracy").click()
    assert accuracies() == sorted(accuracies(), reverse=True)
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("accuracy")
    page.get_by_role("button", name="accuracy").click()
    assert accuracies() == sorted(accuracies())
    page.locator(".chip.finished").click()
    assert rows.count() == 6
    page.reload()  # the address holds it all
    page.wait_for_selector(".runs-table tbody tr")
    assert page.locator(".chip[aria-pressed=true]").count() == 1
    assert accuracies() == sorted(accuracies())


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
        for path in folder.glob("fedskew.db*"):
            path.unlink()
        (folder / "fedskew.db").write_bytes(b"nonsense" * 1000)
        until(lambda: "not a fedskew store" in page.locator(".banner").inner_text())
        shutil.rmtree(folder)
        shutil.copytree(filled, folder)
        until(lambda: page.locator(".runs-table tbody tr").count() == 6)
        assert page.locator(".banner").is_hidden()
        visit.quiet()
        visit.page.close()


def test_control_in_the_page(browser: Browser, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    with dashboard(store.folder, "--allow-control") as address:
        visit = Visit(browser, address)
        page = visit.go("runs")
        assert "token" not in page.url
        page.get_by_role("button", name="New run").click()
        page.locator("dialog [name=name]").fill("from the page")
        page.locator("dialog [name=model]").fill("softmax")
        page.locator("dialog [name=rounds]").fill("100000")
        page.locator("dialog button", has_text="Start").click()
        row = page.locator(".runs-table tbody tr", has_text="from the page")
        row.wait_for(timeout=40_000)
        row.get_by_role("button", name="Stop").click()
        until(lambda: row.locator(".state").inner_text() == "interrupted")
        row.get_by_role("button", name="Resume").wait_for()
        visit.quiet()
        visit.page.close()
        stranger = browser.new_page()
        stranger.goto(address.split("?")[0])
        stranger.wait_for_selector("input[type=password]")
        assert "token" in stranger.locator(".failed").inner_text()
        stranger.close()
