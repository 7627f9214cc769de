"""One self-contained HTML page of sections: text, tables, interactive charts; it asks no host for a thing."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import altair as alt

from fedskew.report import theme, vega
from fedskew.report.tables import Table


@dataclass(frozen=True)
class Figure:
    """A chart, the line below it, its name as a file, and what can be done with it on a page."""

    chart: alt.TopLevelMixin
    caption: str = ""
    name: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Section:
    """A heading, then whatever there is of text, table and figures; several figures stand side by side."""

    heading: str
    text: str = ""
    table: Table | None = None
    figures: Sequence[Figure] = ()


def render(title: str, sections: Sequence[Section], *, intro: str = "", footer: str = "") -> str:
    """The page as text. Backticks mark code in `intro`, `text` and captions; all else is shown as it is."""
    body = "".join(_section(section) for section in sections)
    figures = any(section.figures for section in sections)
    return _PAGE.format(
        title=escape(title),
        style=_STYLE,
        intro=_paragraphs(intro),
        body=body,
        footer=f"<footer>{_paragraphs(footer)}</footer>" if footer else "",
        scripts=f"<script>{vega.script()}</script><script>{_DRAW}</script>" if figures else "",
    )


def _section(section: Section) -> str:
    table = ""
    if section.table:
        note = f'<p class="note">{_inline(section.table.caption)}</p>' if section.table.caption else ""
        table = f'<div class="scroll">{section.table.html()}</div>{note}'
    figures = "".join(_figure(figure) for figure in section.figures)
    if figures:
        figures = f'<div class="figures n{min(len(section.figures), 3)}">{figures}</div>'
    heading = f"<h2>{escape(section.heading)}</h2>" if section.heading else ""
    return f"<section>{heading}{_paragraphs(section.text)}{table}{figures}</section>"


def _figure(figure: Figure) -> str:
    below = f"{figure.caption} {figure.hint}".strip()
    caption = f"<figcaption>{_inline(below)}</figcaption>" if below else ""
    spec = theme.spec(figure.chart, ink="currentColor", paper="transparent")
    if not drawable(spec):
        return f'<figure><p class="empty">nothing to draw yet</p>{caption}</figure>'
    # Vega-Lite cannot stretch composed views: panels are fitted when they are drawn, others scroll in their own box.
    kind = "panels" if "concat" in spec else "scroll" if {"hconcat", "vconcat", "facet", "repeat"} & spec.keys() else ""
    if not kind:
        spec["width"] = "container"
    data = json.dumps(_packed(spec), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    data = data.replace("<", "\\u003c")
    holder = f'<div class="{f"chart {kind}".strip()}"></div><script type="application/json">{data}</script>'
    return f"<figure>{holder}{caption}</figure>"


def drawable(part: Any) -> bool:
    """There is a record in the chart."""
    # Altair keeps inline data under "datasets" or, for a bare alt.Data, where it is used.
    if isinstance(part, dict):
        data = part.get("data")
        found = any(part.get("datasets", {}).values()) or (isinstance(data, dict) and bool(data.get("values")))
        return found or any(drawable(value) for value in part.values())
    return isinstance(part, list) and any(drawable(value) for value in part)


def _packed(part: Any) -> Any:
    """Records as columns, words counted through and numbers with six digits: a fifth of the size."""
    if isinstance(part, list):
        return [_packed(value) for value in part]
    if not isinstance(part, dict):
        return part
    values = part.get("values")
    if (
        isinstance(values, list)
        and values
        and all(isinstance(r, dict) and r.keys() == values[0].keys() for r in values)
    ):
        columns = {key: _column([r[key] for r in values]) for key in values[0]}
        return part | {"values": {"columns": columns, "number": len(values)}}
    return {key: _packed(value) for key, value in part.items()}


def _column(values: list[Any]) -> Any:
    if all(isinstance(value, str) for value in values):
        words = {word: i for i, word in enumerate(dict.fromkeys(values))}
        return {"words": list(words), "at": [words[value] for value in values]}
    return [float(f"{value:.6g}") if isinstance(value, float) else value for value in values]


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{_inline(part)}</p>" for part in re.split(r"\n\s*\n", text.strip()) if part)


def _inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


# The policy forbids every request, whatever a chart or a name may hold; `ast` lets Vega run without eval.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; \
style-src 'unsafe-inline'; img-src data: blob:">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{intro}
{body}
{footer}
</main>
{scripts}
</body>
</html>
"""

# The legend's columns and the panels' sizes depend on the width: a chart is drawn anew when the window crosses a step.
_DRAW = """
const unpacked = part => {
  if (Array.isArray(part)) return part.map(unpacked);
  if (!part || typeof part !== "object") return part;
  if (!part.columns || part.number === undefined)
    return Object.fromEntries(Object.entries(part).map(([key, value]) => [key, unpacked(value)]));
  const columns = Object.entries(part.columns);
  return Array.from({length: part.number}, (_, i) => Object.fromEntries(
    columns.map(([key, c]) => [key, c.words ? c.words[c.at[i]] : c[i]])));
};
const fitted = (spec, width) => {
  const columns = width < 380 ? 1 : width < 600 ? 2 : 3;
  spec.config.legend.columns = columns;
  if (spec.concat) {
    spec.columns = Math.max(1, Math.min(spec.concat.length, Math.floor(width / 270)));
    for (const panel of spec.concat) panel.width = Math.floor(width / spec.columns) - 90;
  }
  return spec;
};
for (const data of document.querySelectorAll('figure script[type="application/json"]')) {
  const box = data.previousElementSibling;
  const options = {mode: "vega-lite", renderer: "svg", ast: true, downloadFileName: "fedskew",
    actions: {export: true, source: false, compiled: false, editor: false}};
  const spec = unpacked(JSON.parse(data.textContent));
  let drawn = "", last = Promise.resolve();
  const draw = () => {
    const width = box.clientWidth, fresh = fitted(structuredClone(spec), width);
    const step = `${fresh.config.legend.columns} ${fresh.concat ? fresh.columns + " " + Math.round(width / 40) : ""}`;
    if (step === drawn) return;
    drawn = step;
    last = last.then(old => { if (old) old.finalize(); return vegaEmbed(box, fresh, options); });
    last.catch(console.error);
  };
  draw();
  window.addEventListener("resize", draw);
}
"""

_STYLE = """
:root { --ink: #1f2328; --soft: #59636e; --line: #d1d9e0; --paper: #ffffff; --card: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d; --paper: #0d1117; --card: #151b23; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Arial, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 24px 16px 48px; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 12px; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 40px 0 8px; overflow-wrap: anywhere; }
p { max-width: 75ch; margin: 0 0 12px; overflow-wrap: anywhere; }
code { font: 0.9em ui-monospace, Menlo, Consolas, monospace; background: var(--card); padding: 0 4px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 14px 6px 0; border-bottom: 1px solid var(--line); text-align: left; }
th:last-child, td:last-child { padding-right: 0; }
th { color: var(--soft); font-weight: 600; font-size: 0.85rem; vertical-align: bottom; }
.right { text-align: right; }
@media (max-width: 600px) { table { font-size: 0.75rem; } th { font-size: 0.68rem; } th, td { padding-right: 5px; } }
.figures { display: grid; gap: 24px; grid-template-columns: minmax(0, 1fr); }
@media (min-width: 760px) { .n2, .n3 { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
@media (min-width: 1080px) { .n3 { grid-template-columns: repeat(3, minmax(0, 1fr)); } }
.n1 { max-width: 820px; }
.n1:has(.panels) { max-width: none; }
figure { margin: 0; min-width: 0; }
.chart { width: 100%; }
.chart.vega-embed.has-actions { display: block; padding-right: 0; }
.chart.vega-embed summary { top: auto; bottom: 0; }
.chart.vega-embed .vega-actions { top: auto; bottom: 38px; right: 0; }
figcaption, footer, .note, .empty { color: var(--soft); font-size: 0.85rem; }
.note { margin-top: 8px; }
footer { margin-top: 40px; border-top: 1px solid var(--line); padding-top: 12px; }
#vg-tooltip-element.vg-tooltip { color: var(--ink); background: var(--card); border-color: var(--line); }
#vg-tooltip-element.vg-tooltip table tr td.key { color: var(--soft); }
@media print { .chart.vega-embed summary { display: none; } }
"""
