"""`fedskew report`: chosen runs as one offline page, as Markdown, or as pictures."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedskew.cli import chosen, console
from fedskew.errors import FedskewError
from fedskew.store import Entry, Store

if TYPE_CHECKING:
    from fedskew.report.groups import Group


class Format(StrEnum):
    """What a report is written as."""

    html = "html"
    md = "md"
    svg = "svg"
    png = "png"


def report(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN...]", help="Ids, beginnings of ids that no other has, or names.", show_default=False
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All runs.", rich_help_panel=chosen.WHICH)] = False,
    data: chosen.Data = None,
    partition: chosen.Partition = None,
    algorithm: chosen.Algorithm = None,
    name: chosen.Name = None,
    status: chosen.Status = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="A file, or for pictures a folder. \\[report.html]", show_default=False),
    ] = None,
    format: Annotated[
        Format | None, typer.Option(help="html, md, svg or png. \\[what --out ends in, else html]", show_default=False)
    ] = None,
    chart: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Only this chart (accuracy, chain, ...); may be repeated.", show_default=False
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(help="Count rounds to this accuracy. \\[95 % of the best]", min=0, max=1, show_default=False),
    ] = None,
    title: Annotated[str, typer.Option(help="The heading.")] = "fedskew report",
    as_json: console.Json = False,
) -> None:
    """Write a report on runs: one HTML file that opens from disk, Markdown with pictures, or pictures alone.

    Example: fedskew report 3f a7 --out report.html
    """
    form, place = _form(out, format)
    store = Store()
    patterns = {"data": data, "partition": partition, "algorithm": algorithm, "name": name, "status": status}
    entries = _entries(store, names or [], everything, patterns)
    from fedskew.report.groups import grouped
    from fedskew.report.views import sections
    from fedskew.report.written import Report

    groups = grouped((entry, store.records(entry.id)) for entry in entries)
    if not any(rows for group in groups for rows in group.rows):
        listed = ", ".join(entry.id for entry in entries[:5])
        raise FedskewError(f"there is no row yet in {listed}: a first round must be done; look again later")
    footer = f"Made by `{shlex.join(['fedskew', *sys.argv[1:]])}`."
    document = Report(title, sections(groups, target), _intro(groups), footer)
    written = document.write(place, form.value, chart or [])
    if as_json:
        size = sum(path.stat().st_size for path in written)
        files = [str(path) for path in written]
        console.print_json({"report": str(place), "format": form, "files": files, "bytes": size, "runs": _ids(groups)})
    else:
        more = f" and {len(written) - 1} pictures" if len(written) > 1 and form is Format.md else ""
        what = f"{len(written)} pictures into {place}" if place.is_dir() else f"{written[0]}{more}"
        console.note(f"wrote {what}: {len(entries)} runs")


def _form(out: Path | None, format: Format | None) -> tuple[Format, Path]:
    """The form and the place; a name that says something else than --format is a mistake."""
    ending = out.suffix.lower().removeprefix(".") if out else ""
    told = Format(ending) if ending in list(Format) else None
    form = format or told or Format.html
    pictures = form in (Format.svg, Format.png)
    if out is None:
        return form, Path("report" if pictures else f"report.{form}")
    if (told or form) is not form or (told is None and (ending or not pictures)):
        folder = ", or a folder" if pictures else ""
        raise FedskewError(f"--out {str(out)!r} does not go with the format {form}: end it in .{form}{folder}")
    return form, out


def _entries(store: Store, names: list[str], everything: bool, patterns: dict[str, str | None]) -> list[Entry]:
    filtered = any(pattern is not None for pattern in patterns.values())
    if not names and not everything and not filtered:
        raise FedskewError(
            "which runs? name some, filter them (--data, --status, ...) or give --all; see: fedskew runs list"
        )
    if names and everything:
        raise FedskewError("--all means every run: leave the names out, or leave --all out")
    asked = [e for name in names for e in chosen.named(store, name)] if names else store.runs()[::-1]
    found = chosen.matching(list({entry.id: entry for entry in asked}.values()), **patterns)
    if not found:
        why = "no run fits these filters" if filtered else "there are no runs"
        raise FedskewError(f"{why} in {store.folder}; the runs are in: fedskew runs list")
    return found


def _intro(groups: list[Group]) -> str:
    from fedskew.store.entry import now

    entries = [entry for group in groups for entry in group.entries]
    going = sum(entry.status == "running" for entry in entries)
    waiting = sum(not rows for group in groups for rows in group.rows)
    parts = [f"{len(entries)} run{'s' * (len(entries) != 1)}, written {now()[:16].replace('T', ' ')} UTC."]
    if going:
        parts.append(f"{going} of them still train and are shown as far as they are.")
    if waiting:
        parts.append(f"{waiting} without a row yet: only in the first table.")
    return " ".join(parts)


def _ids(groups: list[Group]) -> list[str]:
    return [entry.id for group in groups for entry in group.entries]
