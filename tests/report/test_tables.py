from __future__ import annotations

import math
from html.parser import HTMLParser
from io import StringIO

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fedskew.report.tables import MISSING, Column, Table, points

COLUMNS = (
    Column("name", "run", align="left"),
    Column("accuracy", "accuracy", ".1%"),
    Column("loss", "loss (points)", points),
)
TABLE = Table(
    "Two runs",
    COLUMNS,
    [
        {"name": "iid", "accuracy": 0.8195, "loss": -0.00001, "seed": 3},
        {"name": "classes:1", "accuracy": None, "loss": math.nan},
    ],
    caption="one seed",
)


def shown(table: Table, width: int = 100) -> str:
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(table)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


class Cells(HTMLParser):
    """The text of every cell, as a browser would read it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.cells: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag in {"td", "th"}:
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells and self.tags[-1] in {"td", "th"}:
            self.cells[-1] += data


def test_values_are_formatted_and_gaps_are_dashes() -> None:
    assert TABLE.cells() == [["iid", "82.0%", "0.0"], ["classes:1", MISSING, MISSING]]


def test_records_hold_the_raw_values_of_the_columns_only() -> None:
    assert TABLE.records()[0] == {"name": "iid", "accuracy": 0.8195, "loss": -0.00001}


def test_markdown_is_a_pipe_table_with_alignment_and_caption() -> None:
    assert TABLE.markdown() == (
        "| run | accuracy | loss (points) |\n"
        "| :--- | ---: | ---: |\n"
        "| iid | 82.0% | 0.0 |\n"
        "| classes:1 | – | – |\n"
        "\none seed\n"
    )


def test_the_terminal_shows_title_cells_and_caption() -> None:
    text = shown(TABLE)
    assert text.splitlines()[0].strip() == "Two runs"
    assert [line.split() for line in text.splitlines() if line.strip()][-2:] == [
        ["classes:1", "–", "–"],
        ["one", "seed"],
    ]


def test_a_narrow_terminal_brings_columns_closer_before_it_breaks_a_cell() -> None:
    columns = [Column(letter, letter * width) for letter, width in zip("abcdef", (5, 9, 10, 16, 12, 14), strict=True)]
    row = {column.key: "9" * len(column.header) for column in columns}

    def line(width: int) -> str:
        return next(line.strip() for line in shown(Table("", columns, [row]), width).splitlines() if "9" in line)

    assert line(90) == "   ".join(row.values())
    assert line(80) == " ".join(row.values())
    assert line(60) != line(80)


def test_brackets_in_a_name_are_not_markup() -> None:
    assert "[bold]x[/bold]" in shown(Table("", COLUMNS[:1], [{"name": "[bold]x[/bold]"}]))


def test_an_empty_table_says_so_on_a_page() -> None:
    assert "nothing here yet" in Table("", COLUMNS, []).html()


names = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1)


@given(names)
def test_any_name_is_text_in_html(name: str) -> None:
    page = Cells(Table("", COLUMNS[:1], [{"name": name}]).html())
    assert page.cells == ["run", name]
    assert page.tags == ["table", "thead", "tr", "th", "tbody", "tr", "td"]


@given(names)
def test_any_name_stays_in_its_markdown_cell(name: str) -> None:
    lines = Table("", COLUMNS[:2], [{"name": name, "accuracy": 0.5}]).markdown().splitlines()
    assert len(lines) == 3
    assert "<" not in lines[2]
    unescaped = lines[2].replace("\\\\", "").replace("\\|", "")
    assert unescaped.count("|") == 3
