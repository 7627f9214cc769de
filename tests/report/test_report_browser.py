"""The report of real runs in a real browser: drawn, quiet, linked, in its frame; charts take new records."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from made import entry, row
from playwright.sync_api import Browser, Page

from fedskew import Run, Store
from fedskew.report import charts, records, theme, views
from fedskew.report.chain import chain
from fedskew.report.groups import grouped
from fedskew.report.parts import Chart
from fedskew.report.written import Report
from visits import Visit, sticks_out

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"
SMALL = {"model": "mlp", "examples": 300, "clients": 5, "rounds": 3, "lr": 0.1, "divergence": True}

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed"),
]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    store = Store(folder / "store")
    for run in (
        Run(partition="iid", **SMALL),
        Run(partition="iid", seed=1, **SMALL),
        Run(partition="classes:2", **SMALL),
        Run(partition="classes:2", **SMALL | {"name": EVIL, "divergence": False, "share": "beta=0.2,alpha=0.5"}),
    ):
        for _ in store.advance(store.create(run), device="cpu"):
            pass
    groups = grouped((entry, store.records(entry.id)) for entry in store.runs()[::-1])
    (path,) = Report(EVIL, views.sections(groups), intro=EVIL).write(folder / "report.html", "html")
    return path


def test_every_view_is_drawn_and_nothing_is_asked_for(visit: Visit, report: Path) -> None:
    headings = visit.page.locator("h2").all_inner_texts()
    assert headings == ["Runs", "Compare", "Clients", "Classes", "Drift", "From skew to accuracy"]
    assert len(visit.boxes()) == 3 + 3 * 3 + 3 + 2 + 1
    for chart in visit.page.query_selector_all(".chart svg.marks"):
        assert len(chart.query_selector_all("path")) > 5
    assert visit.requests == [report.as_uri()]
    assert visit.noise == []
    assert visit.page.locator("main img, main td script").count() == 0
    assert report.stat().st_size < 2_000_000


def test_a_brush_in_one_panel_shows_the_same_runs_in_the_others(visit: Visit) -> None:
    figure = visit.page.locator("section").last

    def faint() -> int:
        marks = figure.locator(".mark-symbol.role-mark path").evaluate_all("m => m.map(x => x.getAttribute('opacity'))")
        return sum(float(opacity) < 0.5 for opacity in marks)

    assert faint() == 0

    def drag(panel: str, part: float) -> None:
        """Over the left part of a panel."""
        frame = figure.locator(f".{panel}_group path.background").first
        frame.scroll_into_view_if_needed()
        box = frame.bounding_box()
        assert box is not None
        x, y = box["x"], box["y"]
        visit.page.mouse.move(x + 1, y + 1)
        visit.page.mouse.down()
        visit.page.mouse.move(x + box["width"] * part, y + box["height"] - 1, steps=4)
        visit.page.mouse.up()

    drag("emd_divergence", 0.35)  # both iid runs: the others are faint in all three panels
    visit.page.wait_for_function("() => document.querySelectorAll('.emd_accuracy_marks path[opacity=\"0.12\"]').length")
    assert faint() == 1 + 1 + 2
    drag("emd_accuracy", 0.99)  # one brush at a time: this one holds them all
    visit.page.wait_for_function(
        "() => !document.querySelectorAll('.emd_accuracy_marks path[opacity=\"0.12\"]').length"
    )
    assert faint() == 0
    assert visit.noise == []


def test_a_name_in_the_legend_singles_out_its_line_in_every_panel(visit: Visit) -> None:
    drift = visit.page.locator("section", has_text="Drift").locator("figure").first
    lines = drift.locator(".mark-line.role-mark path")
    bright = "m => m.filter(x => (x.getAttribute('opacity') ?? 1) == 1).length"
    assert lines.evaluate_all(bright) == lines.count() == 2 * 4  # two runs; all layers, fc1, fc2, fc3
    drift.locator(".role-legend-label text", has_text="classes:2").click()
    assert lines.evaluate_all(bright) == 4
    assert visit.noise == []


def test_nothing_sticks_out_of_a_wide_page(visit: Visit) -> None:
    assert sticks_out(visit.page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_sticks_out_of_a_narrow_page(browser: Browser, report: Path, scheme: str) -> None:
    visit = Visit(browser, report, 400)
    visit.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    assert sticks_out(visit.page) == []
    assert visit.noise == []
    visit.page.close()


def embed(page: Page, chart: Chart, name: str, fresh: list[dict[str, object]]) -> int:
    """Draw a chart, replace its records as a live page does, and count the marks."""
    spec = json.dumps(theme.spec(chart))
    return page.evaluate(  # type: ignore[no-any-return]
        """async ([spec, name, fresh]) => {
            const box = document.body.appendChild(document.createElement('div'));
            const options = {mode: 'vega-lite', ast: true, renderer: 'svg', actions: false};
            const made = await vegaEmbed(box, JSON.parse(spec), options);
            await made.view.data(name, fresh).runAsync();
            const marks = name === 'per_class' ? 'rect' : 'symbol';
            return box.querySelectorAll(`.mark-${marks}.role-mark path`).length;
        }""",
        [spec, name, fresh],
    )


def test_records_of_a_drawn_chart_can_be_replaced(visit: Visit) -> None:
    def group(rounds: int) -> list[object]:
        rows = [row(t, t / 10, drift=t / 10) for t in range(1, rounds + 1)]
        return grouped([(entry("a" * 8), rows)])  # type: ignore[return-value]

    few, many = group(2), group(6)
    grown = [
        embed(visit.page, make(few), name, make_records(many))  # type: ignore[no-untyped-call]
        for name, make, make_records in (
            ("curves", lambda g: charts.curves(records.curves(g), y="accuracy"), records.curves),
            ("drift", lambda g: charts.curves(records.drift(g), y="w", facet="layer", name="drift"), records.drift),
            ("per_class", lambda g: charts.per_class(records.per_class(g[0])), lambda g: records.per_class(g[0])),
            ("chain", lambda g: chain(records.chain(g)), records.chain),
        )
    ]
    assert grown == [6, 3 * 6, 2 * 6, 3]
    assert visit.noise == []
