from __future__ import annotations

import json
import re
from html.parser import HTMLParser

from fedskew.report import charts
from fedskew.report.page import Figure, Section, render
from fedskew.report.tables import Column, Table

EVIL = "<script>alert(1)</script>"
CURVES = [{"run": EVIL, "round": t, "accuracy": t / 4} for t in (1, 2, 3)]


class Page(HTMLParser):
    """Elements, what they refer to, and the words outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.refers: list[str] = []
        self.scripts: list[tuple[str | None, str]] = []
        self.words = ""
        self._inside: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.refers += [f"{tag} {key}" for key, _ in attrs if key in {"src", "href", "srcset", "data", "action"}]
        self._inside = tag
        if tag == "script":
            self.scripts.append((dict(attrs).get("type"), ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            kind, text = self.scripts[-1]
            self.scripts[-1] = (kind, text + data)
        elif self._inside != "style":
            self.words += data


def example() -> str:
    table = Table("", [Column("name", EVIL)], [{"name": EVIL}], caption=EVIL)
    return render(
        EVIL,
        [
            Section(EVIL, f"{EVIL} and `a < b`\n\nsecond paragraph", table),
            Section("chart", figures=[Figure(charts.accuracy_curves(CURVES), EVIL)] * 2),
        ],
        intro=EVIL,
        footer=EVIL,
    )


def test_any_text_is_shown_and_never_run() -> None:
    page = Page(example())
    kinds = [kind for kind, _ in page.scripts]
    assert kinds == ["application/json"] * 2 + [None] * 2  # the charts, Vega, the drawing: no other script
    # title, h1, intro, heading, text, column, cell, caption of table and of two figures, footer
    assert page.words.count(EVIL) == 11
    assert page.tags.count("p") == 5  # intro, two of text, the table's note, footer
    assert "<code>a &lt; b</code>" in example()


def test_the_page_refers_to_nothing() -> None:
    text = example()
    assert Page(text).refers == []
    styles = re.findall(r"<style>(.*?)</style>", text, re.S)
    assert styles
    assert not re.search(r"url\(|@import", "".join(styles))
    assert re.search(r'Content-Security-Policy" content="default-src \'none\';', text)


def test_a_chart_comes_back_from_the_page_as_it_was() -> None:
    (_, first), (_, second), *_ = Page(example()).scripts
    spec = json.loads(first)
    assert first == second
    assert "$schema" not in spec
    assert spec["width"] == "container"
    columns = spec["data"]["values"]["columns"]
    runs = [columns["run"]["words"][i] for i in columns["run"]["at"]]
    assert list(zip(runs, columns["round"], columns["value"], strict=True)) == [tuple(r.values()) for r in CURVES]
    assert "<" not in first


def test_the_vega_bundle_is_there_once() -> None:
    assert example().count("window.vegaEmbed=") == 1


def test_a_page_without_charts_is_small() -> None:
    text = render("t", [Section("words", "only")])
    assert len(text) < 5_000
    assert "<script" not in text


def test_an_empty_chart_says_so() -> None:
    page = Page(render("t", [Section("s", figures=[Figure(charts.accuracy_curves([]), "below")])]))
    assert "nothing to draw yet" in page.words
    assert not any(kind == "application/json" for kind, _ in page.scripts)


def test_a_composed_chart_scrolls_in_its_own_box() -> None:
    bars = charts.divergence_by_layer([{"run": "a", "layer": "fc1", "value": 0.1}])
    text = render("t", [Section("s", figures=[Figure(bars | bars)])])
    assert '<div class="chart scroll">' in text
    assert "width" not in json.loads(Page(text).scripts[0][1])
