"""What is asked of a paper, and the files that answer it."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedskew.errors import FedskewError
from fedskew.papers.protocol import Cell, Exhibit, Scale, check_only, kept
from fedskew.report import files, page
from fedskew.reproduce.cells import Outcome, outcomes
from fedskew.store import Store

PAPERS = ("zhao2018", "lahoti", "hsu2019")


@dataclass(frozen=True)
class Request:
    """What is asked of a paper: exhibits, data sets and a scale."""

    paper: str
    names: tuple[str, ...]  # "table 3"
    data: tuple[str, ...]
    scale: Scale
    only: tuple[str, ...] = ()  # "C=0.05": cells that say otherwise are left out

    @classmethod
    def of(
        cls,
        paper: str,
        names: Sequence[str],
        data: str | None,
        scale: str,
        seeds: int | None,
        only: Sequence[str] = (),
        splits: Path | None = None,
    ) -> Request:
        """Checked; nothing named means everything the paper has."""
        if paper not in PAPERS:
            raise FedskewError(f"paper {paper!r} is not known: choose one of {', '.join(PAPERS)}")
        cells, exhibits = _modules(paper)
        if scale not in cells.SCALES:
            raise FedskewError(f"--scale {scale!r} is not known: choose one of {', '.join(cells.SCALES)}")
        if unknown := [name for name in names if name not in exhibits.EXHIBITS]:
            raise FedskewError(f"{paper} has no {unknown[0]}; choose from: {', '.join(exhibits.EXHIBITS)}")
        if data is not None and data not in cells.COLUMNS:
            raise FedskewError(f"{paper} has no data {data!r}: choose one of {', '.join(cells.COLUMNS)}")
        wanted = tuple(names) or tuple(exhibits.EXHIBITS)
        chosen = cells.SCALES[scale]
        changes: dict[str, Any] = {"seeds": seeds} if seeds else {}
        if splits is not None:
            if not hasattr(chosen, "splits"):
                raise FedskewError(f"--splits goes with hsu2019, whose populations were released; {paper} has none")
            changes["splits"] = str(splits)
        columns = (data,) if data else cells.COLUMNS
        request = cls(paper, wanted, columns, replace(chosen, **changes), tuple(only))
        if only:
            check_only(replace(request, only=()).cells(), only)
        return request

    def cells(self, *names: str) -> list[Cell]:
        """The cells that these exhibits need (all that are asked for, if none is named), each once."""
        _, exhibits = _modules(self.paper)
        found: dict[tuple[Any, ...], Cell] = {}
        for name in names or self.names:
            make, _ = exhibits.EXHIBITS[name]
            for column in self.columns(name):
                for cell in kept(make(column, self.scale), self.only):
                    found.setdefault((cell.where, str(cell.setting)), cell)
        return list(found.values())

    def columns(self, name: str) -> list[str]:
        """The data sets that an exhibit shows, of those asked for."""
        _, exhibits = _modules(self.paper)
        return [column for column in exhibits.DATA[name] if column in self.data]

    def exhibits(self, store: Store) -> list[Exhibit]:
        """Every table and figure from what the store knows now."""
        return [self.exhibit(store, name)[0] for name in self.names if self.columns(name)]

    def exhibit(self, store: Store, name: str) -> tuple[Exhibit, list[Outcome]]:
        """One of them, and the outcomes that it is made of."""
        _, exhibits = _modules(self.paper)
        found = outcomes(store, self.cells(name))
        return exhibits.EXHIBITS[name][1](found), found

    @property
    def title(self) -> str:
        """The paper's."""
        title: str = _modules(self.paper)[1].TITLE
        return title


def _modules(paper: str) -> tuple[Any, Any]:
    """A paper's cells and its exhibits; the latter draw charts, which a machine that only trains may not have."""
    return importlib.import_module(f"fedskew.papers.{paper}"), importlib.import_module(
        f"fedskew.papers.{paper}_exhibits"
    )


def write(request: Request, exhibits: Sequence[Exhibit], folder: Path, about: dict[str, Any]) -> list[Path]:
    """Each exhibit as JSON and its charts as SVG, all of them as one Markdown file and one offline page."""
    written = [files.write(folder / "about.json", json.dumps(about, indent=1) + "\n")]
    markdown = [f"# {request.title}", "", f"`{about['command']}`", ""]
    sections = []
    for exhibit in exhibits:
        written.append(files.write(folder / f"{exhibit.slug}.json", json.dumps(exhibit.records, indent=1) + "\n"))
        markdown += [f"## {exhibit.title}", ""]
        if exhibit.table:
            markdown += [exhibit.table.markdown()]
        for i, (caption, chart) in enumerate(exhibit.charts, 1):
            path = folder / f"{exhibit.slug}{f'-{i}' if len(exhibit.charts) > 1 else ''}.svg"
            written.append(files.save(chart, path))
            markdown += [f"![{caption}]({path.name})", ""]
        figures = [page.Figure(chart, caption) for caption, chart in exhibit.charts]
        sections.append(page.Section(exhibit.title, table=exhibit.table, figures=figures))
    written.append(files.write(folder / "README.md", "\n".join(markdown)))
    text = page.render(request.title, sections, footer=f"Made by `{about['command']}`.")
    written.append(files.write(folder / "report.html", text))
    return written
