"""A small table: columns and rows once, then a terminal, Markdown, HTML or plain records."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

import rich.table
from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

MISSING = "–"
WIDEST = 10_000  # no terminal has so many columns


@dataclass(frozen=True)
class Column:
    """One column: `format` is a format specification (".1%") or a function of a value that is there."""

    key: str
    header: str
    format: str | Callable[[Any], str] = ""
    align: Literal["left", "right"] = "right"

    def cell(self, row: Mapping[str, Any]) -> str:
        """The row's value as text; None and NaN are a dash."""
        value = row.get(self.key)
        if value is None or value != value:
            return MISSING
        return self.format(value) if callable(self.format) else format(value, self.format)


@dataclass(frozen=True)
class Table:
    """A titled table of rows; a row may hold more than the columns show."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    caption: str = ""

    def cells(self) -> list[list[str]]:
        """Every cell as text, row by row."""
        return [[column.cell(row) for column in self.columns] for row in self.rows]

    def records(self) -> list[dict[str, Any]]:
        """The raw values of the columns, for JSON."""
        return [{column.key: row.get(column.key) for column in self.columns} for row in self.rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """For a terminal; one that is narrow for it gets columns closer together before cells are broken into lines."""
        roomy = self._drawn(padding=1)
        wanted = Measurement.get(console, options.update(max_width=WIDEST), roomy).maximum
        yield roomy if wanted <= options.max_width else self._drawn(padding=0)

    def _drawn(self, padding: int) -> rich.table.Table:
        """Text objects, so that a name in [brackets] is not taken for markup."""
        table = rich.table.Table(
            title=Text(self.title),
            caption=Text(self.caption) if self.caption else None,
            title_justify="left",
            caption_justify="left",
            box=box.SIMPLE_HEAD,
            padding=(0, padding),
        )
        for column in self.columns:
            table.add_column(Text(column.header), justify=column.align, overflow="fold")
        for cells in self.cells():
            table.add_row(*map(Text, cells))
        return table

    def markdown(self) -> str:
        """A pipe table with its caption below."""
        rule = ["---:" if c.align == "right" else ":---" for c in self.columns]
        lines = [[markdown_text(c.header) for c in self.columns], rule]
        lines += [[markdown_text(cell) for cell in cells] for cells in self.cells()]
        text = "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
        return text + (f"\n{markdown_text(self.caption)}\n" if self.caption else "")

    def html(self) -> str:
        """A `<table>`; title and caption are left to the page around it."""
        head = "".join(_html("th", c, c.header) for c in self.columns)
        body = "".join(
            "<tr>" + "".join(_html("td", c, cell) for c, cell in zip(self.columns, cells, strict=True)) + "</tr>"
            for cells in self.cells()
        )
        if not self.rows:
            body = f'<tr><td class="empty" colspan="{len(self.columns)}">nothing here yet</td></tr>'
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def points(value: float) -> str:
    """A difference of two fractions in percentage points."""
    return f"{round(100 * value, 1) + 0.0:.1f}"  # + 0.0 turns -0.0 into 0.0


def megabytes(value: float) -> str:
    """Bytes in millions."""
    return f"{value / 1e6:,.1f} MB" if math.isfinite(value) else ""


def markdown_text(text: str) -> str:
    """One line that Markdown shows as it is: no cell, link, image, emphasis or element comes of it."""
    return re.sub(r"([\\|`*\[\]])", r"\\\1", " ".join(text.split())).replace("<", "&lt;")


def _html(tag: str, column: Column, text: str) -> str:
    scope = ' scope="col"' if tag == "th" else ""
    return f'<{tag}{scope} class="{column.align}">{escape(text)}</{tag}>'
