"""A report as files: one page, a Markdown document with pictures beside it, or the pictures alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from fedskew.errors import FedskewError
from fedskew.report import files, markdown, page, theme
from fedskew.report.page import Figure, Section

Format = Literal["html", "md", "svg", "png"]


@dataclass(frozen=True)
class Report:
    """What is to be written, whatever the form."""

    title: str
    sections: Sequence[Section]
    intro: str = ""
    footer: str = ""

    def figures(self, chosen: Sequence[str] = ()) -> list[Figure]:
        """Those that have something to draw, or the chosen ones of them."""
        drawn = [f for s in self.sections for f in s.figures if page.drawable(theme.spec(f.chart))]
        if unknown := [name for name in chosen if name not in {f.name for f in drawn}]:
            there = ", ".join(f.name for f in drawn) or "none"
            raise FedskewError(f"--chart {unknown[0]!r} is not among the charts of these runs: {there}")
        return [f for f in drawn if not chosen or f.name in chosen]

    def write(self, out: Path, form: Format, chosen: Sequence[str] = ()) -> list[Path]:
        """The files written; svg and png go into a folder, or the one chosen chart into the file named."""
        match form:
            case "html":
                text = page.render(self.title, self._of(chosen), intro=self.intro, footer=self.footer)
                return [files.write(out, text)]
            case "md":
                folder = out.with_name(f"{out.stem}-charts")
                figures = self.figures(chosen)
                pictures = {f.name: quote(f"{folder.name}/{f.name}.svg") for f in figures}
                text = markdown.render(self.title, self.sections, pictures, intro=self.intro, footer=self.footer)
                return [files.write(out, text), *(files.save(f.chart, folder / f"{f.name}.svg") for f in figures)]
            case _ if out.suffix.lower() == f".{form}":
                return [files.save(self.figures(chosen or ["accuracy"])[0].chart, out)]
            case _:
                return [files.save(f.chart, out / f"{f.name}.{form}") for f in self.figures(chosen)]

    def _of(self, chosen: Sequence[str]) -> list[Section]:
        if not chosen:
            return list(self.sections)
        kept = {f.name for f in self.figures(chosen)}
        sections = [
            Section(s.heading, s.text, s.table, [f for f in s.figures if f.name in kept]) for s in self.sections
        ]
        return [s for s in sections if s.table or s.figures]
