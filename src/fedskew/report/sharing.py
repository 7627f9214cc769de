"""What sharing does to skew: the clients' EMD before and after, as two histograms over each other."""

from __future__ import annotations

from typing import Any

import altair as alt
from numpy.typing import ArrayLike

from fedskew.report.population import emd_bins
from fedskew.report.theme import PALETTE

BEFORE, AFTER = "private data", "with shared data"


def before_and_after(before: ArrayLike, after: ArrayLike | None = None, *, title: str = "") -> alt.Chart:
    """How many clients have which EMD, from their private data and, where there is some, with their shared data."""
    values: list[dict[str, Any]] = [r | {"data": BEFORE} for r in emd_bins(before)]
    if after is not None:
        values += [r | {"data": AFTER} for r in emd_bins(after)]
    scale = alt.Scale(domain=[BEFORE, AFTER], range=[PALETTE[3], PALETTE[4]])
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(name="before_and_after", values=values))
        .mark_bar(binSpacing=1, fillOpacity=0.7)
        .encode(
            x=alt.X("low:Q", bin="binned", title="EMD of a client's labels", axis=alt.Axis(tickCount=5, grid=False)),
            x2="high:Q",
            y=alt.Y("clients:Q", title="clients", stack=None, axis=alt.Axis(tickMinStep=1, format="d")),
            color=alt.Color("data:N", scale=scale, sort=[BEFORE, AFTER]),
            tooltip=[
                alt.Tooltip("data:N"),
                alt.Tooltip("low:Q", title="EMD from"),
                alt.Tooltip("high:Q", title="below"),
                alt.Tooltip("clients:Q", format=","),
            ],
        )
        .properties(width=320, height=200, title=title)
    )
    return chart
