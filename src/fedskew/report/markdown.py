"""Sections as Markdown: tables as they are, charts as links to pictures beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from fedskew.report.page import Section
from fedskew.report.tables import markdown_text


def render(
    title: str, sections: Sequence[Section], pictures: Mapping[str, str], *, intro: str = "", footer: str = ""
) -> str:
    """The document; `pictures` says where the figure of a name lies. Backticks mark code, as on a page."""
    parts = [f"# {markdown_text(title)}", _paragraph(intro)]
    for section in sections:
        parts += [f"## {markdown_text(section.heading)}", _paragraph(section.text)]
        if section.table:
            parts.append(section.table.markdown().rstrip())
        for figure in section.figures:
            if figure.name in pictures:
                caption = _paragraph(figure.caption)
                parts += [f"![{caption or figure.name}]({pictures[figure.name]})", caption]
    return "\n\n".join(part for part in [*parts, _paragraph(footer)] if part) + "\n"


def _paragraph(text: str) -> str:
    """Text with its code, which Markdown shows literally, left alone."""
    pieces = re.split(r"(`[^`]+`)", text)
    return "".join(piece if i % 2 else _kept(piece) for i, piece in enumerate(pieces))


def _kept(piece: str) -> str:
    inner = markdown_text(piece)
    return f"{' ' * piece.startswith(' ')}{inner}{' ' * (len(piece) > 1 and piece.endswith(' '))}" if inner else piece
