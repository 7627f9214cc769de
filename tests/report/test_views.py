"""The views of chosen runs, from rows made by hand and from real ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from made import entry, row, seeds

from fedskew.errors import FedskewError
from fedskew.report import markdown, theme, views
from fedskew.report.groups import Group, Rows, grouped
from fedskew.report.page import Section, render
from fedskew.report.written import Report
from fedskew.store import Entry

EVIL = "<script>alert(1)</script>![x](y)|`*"


def long_run(id: str, rounds: int, layers: int, classes: int, **spec: object) -> tuple[object, list[dict[str, object]]]:
    def half(t: int) -> dict[str, object]:
        return {"total": t / 7, "layers": {f"layer{i}.conv": (t * i % 97) / 31 for i in range(layers)}}

    rows = [
        row(
            t,
            (t * 37 % 101) / 101,
            per_class=[(t * c % 89) / 89 for c in range(classes)],
            divergence={"relative": half(t), "rms": half(t)},
        )
        for t in range(1, rounds + 1)
    ]
    return entry(id, rounds=rounds, round=rounds, **spec), rows  # type: ignore[arg-type]


def named(sections: list[Section], heading: str) -> Section:
    (found,) = [s for s in sections if s.heading == heading]
    return found


def runs_of(*groups: Group) -> list[tuple[Entry, Rows]]:
    return [pair for group in groups for pair in zip(group.entries, group.rows, strict=True)]


def test_what_was_not_measured_is_a_sentence_and_no_empty_chart() -> None:
    plain = grouped([(entry("a" * 8), [row(1, 0.5, per_class=None)])])
    sections = views.sections(plain)
    assert "train with `--divergence`" in named(sections, "Drift").text
    assert "None of these runs recorded" in named(sections, "Classes").text
    assert not named(sections, "Drift").figures
    assert not named(sections, "Classes").figures
    assert "first and the last link" in named(sections, "From skew to accuracy").text
    page = render("t", sections)
    assert "nothing to draw" not in page


def test_a_run_without_rows_is_in_the_first_table_only() -> None:
    groups = grouped([(entry("a" * 8), [row(1, 0.5)]), (entry("b" * 8, lr=1, status="running", round=0), [])])
    sections = views.sections(groups)
    first, second = (table.rows for table in (sections[0].table, sections[1].table) if table)
    assert [r["id"] for r in first] == ["a" * 8, "b" * 8]
    assert [r["ids"] for r in second] == [["a" * 8]]


def test_data_that_is_gone_is_said_and_the_rest_is_shown() -> None:
    groups = grouped([(entry("a" * 8, data="gone.npz"), [row(1, 0.5)])])
    sections = views.sections(groups)
    assert "gone.npz" in named(sections, "Clients").text
    assert named(sections, "Classes").figures
    assert named(sections, "Compare").figures


def test_one_population_is_shown_once() -> None:
    alike = runs_of(seeds([0.5], lr=0.1), seeds([0.5], lr=0.2))
    groups = [*grouped(alike), seeds([0.5], share={"beta": 0.2, "alpha": 1.0})]
    figures = named(views.sections(groups), "Clients").figures
    assert [f.name for f in figures] == ["clients-1", "emd-1", "sizes-1", "clients-2", "emd-2", "sizes-2"]
    assert figures[0].caption == "fedavg, classes:1, lr 0.1, seed 0: 5 clients"  # the first that has them


def test_the_target_is_of_the_best_run_and_only_on_one_data_set() -> None:
    groups = grouped([*runs_of(seeds([0.5, 0.8])), *runs_of(seeds([0.2, 0.2], lr=0.3))])
    table = views.compare(groups).table
    assert table is not None
    assert [r["target"] for r in table.rows] == pytest.approx([0.95 * 0.65] * 2)
    assert "the target is 61.7%" in table.caption
    mixed = views.compare([groups[0], seeds([0.5], data="mnist")]).table
    assert mixed is not None
    assert mixed.rows[0]["target"] is None


@pytest.mark.parametrize(("runs", "rounds"), [(1, 5_000), (60, 150)])
def test_a_page_stays_below_two_megabytes(runs: int, rounds: int) -> None:
    made = [long_run(f"{i:08x}", rounds, 20, 100, lr=1 + i, name=f"{i} {'n' * 190}") for i in range(runs)]
    page = render("long", views.sections(grouped(made)))  # type: ignore[arg-type]
    assert len(page.encode()) < 2_000_000
    assert page.count("window.vegaEmbed=") == 1
    if runs > views.MOST_LINES:
        assert f"The first {views.MOST_LINES} of {runs} are drawn" in page


def test_more_lines_than_colours_are_dashed() -> None:
    runs = runs_of(*(seeds([0.5], lr=i + 1) for i in range(11)))
    few, many = (json.dumps(theme.spec(views.compare(grouped(runs[:n])).figures[0].chart)) for n in (10, 11))
    assert "strokeDash" not in few
    assert '"range": [[1, 0], [1, 0]' in many
    assert "[7, 3]]" in many


def test_markdown_shows_names_as_they_are(tmp_path: Path) -> None:
    groups = [seeds([0.5, 0.6], name=EVIL)]
    report = Report(EVIL, views.sections(groups), intro=EVIL, footer="Made by `fedskew report`.")
    document, *pictures = report.write(tmp_path / "a b.md", "md")
    text = document.read_text()
    assert "<script" not in text
    assert "![x](y)" not in text
    assert "Made by `fedskew report`." in text
    links = re.findall(r"^!\[.*\]\((.*)\)$", text, re.MULTILINE)
    assert links == [f"a%20b-charts/{p.name}" for p in pictures]
    assert all(p.read_text().startswith("<svg") for p in pictures)


def test_markdown_keeps_the_spaces_around_code() -> None:
    assert "a \\* and `b * c` end" in markdown.render("", [Section("", "a * and `b * c` end")], {})


def test_pictures_go_into_a_folder_or_one_into_a_file(tmp_path: Path) -> None:
    report = Report("t", views.sections([seeds([0.5, 0.6])]))
    written = report.write(tmp_path / "all", "svg", ["accuracy", "chain"])
    assert [p.name for p in written] == ["accuracy.svg", "chain.svg"]
    (one,) = report.write(tmp_path / "one.png", "png", ["chain"])
    assert one.read_bytes().startswith(b"\x89PNG")
    (usual,) = report.write(tmp_path / "usual.svg", "svg")
    assert "test accuracy" in usual.read_text()
    with pytest.raises(FedskewError, match=r"--chart 'drift-rms' is not among .*accuracy, test-loss"):
        report.write(tmp_path / "x.svg", "svg", ["drift-rms"])


def test_a_page_of_chosen_charts_has_only_those(tmp_path: Path) -> None:
    (page,) = Report("t", views.sections([seeds([0.5, 0.6])])).write(tmp_path / "r.html", "html", ["chain"])
    text = page.read_text()
    assert text.count('<script type="application/json"') == 1
    assert "<h2>Clients</h2>" not in text


def layered(group: Group, field: str) -> dict[str, object]:
    figure = next(f for f in views.compare([group]).figures if f.name == field)
    scale: dict[str, object] = theme.spec(figure.chart)["layer"][1]["encoding"]["y"]["scale"]
    return scale


def test_a_loss_through_decades_is_on_a_logarithm() -> None:
    (steep,) = grouped([(entry("a" * 8), [row(t, 0.5, loss=10.0 ** (6 - t)) for t in range(1, 9)])])
    assert layered(steep, "training-loss") == {"type": "log"}
    assert layered(seeds([0.5, 0.6]), "training-loss") == {"zero": False}
