"""Each view of the dashboard in chromium: what a person does there, and what it shows."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest
from dashboards import dashboard, trained
from playwright.sync_api import Browser
from windows import Visit, until

from fedskew import measure, sides
from fedskew.data import datasets
from fedskew.data.partition import parse_partition
from fedskew.prepare import Share
from fedskew.store import Store
from stopped import ENDLESS

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed"),
]


def test_a_run_that_starts_now_appears_and_its_curve_grows(visit: Visit, store: Store) -> None:
    page = visit.go("runs")
    before = page.locator(".runs-table tbody tr").count()
    page.evaluate("() => { window.mark = 1; }")
    process = trained(store.folder, "--partition", "classes:1", "--rounds", str(ENDLESS), "--name", "just started")
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


def test_control_in_the_page(browser: Browser, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    with dashboard(store.folder, "--allow-control") as address:
        visit = Visit(browser, address)
        page = visit.go("runs")
        assert "token" not in page.url
        page.get_by_role("button", name="New run").click()
        page.locator("dialog [name=name]").fill("from the page")
        page.locator("dialog [name=model]").fill("softmax")
        page.locator("dialog [name=rounds]").fill(str(ENDLESS))
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
