"""The page in a real browser: everything drawn, nothing asked for, nothing run that is only a name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from fedskew import demo
from fedskew.experiment import train
from fedskew.report import charts, files, reached
from fedskew.report.page import Figure, Section, render
from fedskew.report.tables import Column, Table
from visits import Visit, sticks_out

EVIL = "<script>alert(1)</script><img src=http://localhost:9/x onerror=alert(2)>"
RUNS = ["sgd", "fedavg, classes:1", EVIL]
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed"),
]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    curves = [{"run": run, "round": t, "accuracy": (t + i) / 12} for i, run in enumerate(RUNS) for t in (1, 5, 9)]
    layers = [{"run": run, "layer": f"fc{k}", "value": k / 10} for run in RUNS for k in (1, 2)]
    spots = [{"run": run, "algorithm": run, "emd": 0.9 * i, "accuracy": 0.5} for i, run in enumerate(RUNS)]
    columns = [Column("run", "run", align="left"), *(Column(f"c{i}", f"a long header {i}") for i in range(7))]
    sections = [
        Section("table", table=Table("", columns, [{"run": run} for run in RUNS], caption="a caption " * 20)),
        Section("curves", figures=[Figure(charts.accuracy_curves(curves), EVIL)]),
        Section("layers", figures=[Figure(charts.divergence_by_layer(layers, percent=True))] * 2),
        Section("emd", figures=[Figure(reached.emd_accuracy(spots, baseline=0.97))]),
        Section("composed", figures=[Figure(charts.accuracy_curves(curves) | charts.divergence_by_layer(layers))]),
    ]
    text = render(f"a name without end {'x' * 200}", sections, intro=EVIL)
    return files.write(tmp_path_factory.mktemp("page") / "report.html", text)


@pytest.fixture(scope="module")
def demo_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    outcomes = [demo.Outcome(run, list(train(run, device="cpu"))) for run in demo.runs(rounds=2)]
    text = render(demo.TITLE, demo.sections(outcomes), intro=demo.intro(outcomes))
    return files.write(tmp_path_factory.mktemp("demo") / "report.html", text)


def test_every_chart_is_drawn_and_nothing_is_asked_for(visit: Visit, report: Path) -> None:
    assert len(visit.boxes()) == 5
    for chart in visit.page.query_selector_all(".chart svg.marks"):
        assert len(chart.query_selector_all("path")) > 5
    assert visit.requests == [report.as_uri()]
    assert visit.noise == []


def test_names_are_text_in_chart_legend_and_tooltip(visit: Visit) -> None:
    assert visit.page.locator("svg.marks text", has_text="<script>alert(1)").count() >= 1
    bar = visit.page.locator("section:nth-of-type(3) svg.marks .mark-rect.role-mark path").last
    bar.hover()
    visit.page.wait_for_selector("#vg-tooltip-element.visible")
    assert EVIL[:25] in visit.page.inner_text("#vg-tooltip-element")
    assert visit.page.locator("#vg-tooltip-element img, #vg-tooltip-element script, main img").count() == 0
    assert visit.noise == []


def test_a_picture_can_be_saved_and_nothing_leads_away(visit: Visit) -> None:
    visit.page.locator("summary").first.click()
    links = visit.page.locator(".chart").first.locator(".vega-actions a")
    assert links.all_inner_texts() == ["Save as SVG", "Save as PNG"]
    with visit.page.expect_download() as download:
        links.first.click()
    assert Path(download.value.path()).read_text().startswith("<svg")


def test_nothing_sticks_out_of_a_wide_page(visit: Visit) -> None:
    assert sticks_out(visit.page) == []


def test_nothing_sticks_out_of_a_narrow_page(browser: Browser, report: Path) -> None:
    visit = Visit(browser, report, 400)
    assert sticks_out(visit.page) == []
    assert visit.noise == []
    visit.page.close()


def test_ink_and_paper_follow_the_reader(visit: Visit) -> None:
    def brightness() -> list[int]:
        return visit.page.evaluate(  # type: ignore[no-any-return]
            """() => [getComputedStyle(document.body).backgroundColor,
                      getComputedStyle(document.querySelector('svg.marks .role-axis-label text')).fill]
                     .map(c => c.match(/[0-9]+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0))"""
        )

    paper, ink = brightness()
    assert paper - ink > 400
    visit.page.emulate_media(color_scheme="dark")
    paper, ink = brightness()
    assert ink - paper > 400


def test_charts_follow_the_window(visit: Visit) -> None:
    visit.page.set_viewport_size({"width": 400, "height": 900})
    visit.page.wait_for_function(
        """() => [...document.querySelectorAll('.chart:not(.scroll) svg.marks')]
           .every(svg => svg.getBoundingClientRect().width < 400)"""
    )
    assert sticks_out(visit.page) == []
    assert visit.page.locator(".chart svg.marks").count() == 5
    assert visit.noise == []


@pytest.mark.parametrize("width", [400, 1600])
def test_the_demos_own_report(browser: Browser, demo_report: Path, width: int) -> None:
    visit = Visit(browser, demo_report, width)
    assert len(visit.boxes()) == 8
    assert sticks_out(visit.page) == []
    table = visit.page.locator(".scroll").first
    assert table.evaluate("e => e.scrollWidth <= e.clientWidth")  # the whole table is in sight
    assert visit.requests == [demo_report.as_uri()]
    assert visit.noise == []
    visit.page.close()
