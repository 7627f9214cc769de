"""What charts are put together from: the finite records, a run's colour, a dashed line, a size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from fedskew.report.theme import PALETTE

Record = Mapping[str, Any]
Chart = alt.Chart | alt.LayerChart | alt.FacetChart | alt.ConcatChart  # what alt.layer and alt.concat may give
Level = tuple[str, float]  # the name and the height of a dashed line

WIDTH, HEIGHT = 480, 280


def by_run(values: Sequence[Record], runs: Sequence[str], *, legend: bool = True) -> alt.Color:
    """The run's colour: `runs` names all of a page in their order, and only those drawn are in the legend."""
    names = order(values, "run")
    colour = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(dict.fromkeys([*runs, *names]))}
    scale = alt.Scale(domain=names, range=[colour[name] for name in names])
    return alt.Color("run:N", sort=names, scale=scale, legend=alt.Legend() if legend else None)


def level_line(level: Level | None) -> list[alt.Chart]:
    """A dashed line across the chart, with its name and its height."""
    if level is None:
        return []
    name, height = level
    line = alt.Chart(alt.InlineData(values=[{"level": height, "text": f"{name} {height:.1%}"}]))
    return [
        line.mark_rule(strokeDash=[5, 4], opacity=0.6).encode(y="level:Q"),
        line.mark_text(align="right", dx=-4, dy=-9).encode(y="level:Q", x=alt.value("width"), text="text:N"),
    ]


def order(values: Iterable[Record], field: str) -> list[str]:
    """The values of a field in the order in which they come."""
    return list(dict.fromkeys(str(r[field]) for r in values))


def finite(records: Iterable[Record], field: str) -> list[dict[str, Any]]:
    """The records that have this number: a round that was not evaluated, or that diverged, is a gap and no zero."""
    return [dict(r) for r in records if r[field] is not None and math.isfinite(r[field])]


def sized(chart: Chart, title: str) -> Chart:
    """The chart in the size of one that stands alone, with a title if there is one."""
    drawn: Chart = chart.properties(width=WIDTH, height=HEIGHT)
    return drawn.properties(title=title) if title else drawn
