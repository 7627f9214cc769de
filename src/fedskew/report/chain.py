"""The papers' causal chain across runs: skew pulls the weights apart, and that costs accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import altair as alt

from fedskew.report import theme
from fedskew.report.parts import Record, by_run, finite

WIDTH, HEIGHT = 240, 220
AXES = {
    "emd": ("EMD of the clients' labels", "~g"),
    "divergence": ("weight divergence", "%"),
    "accuracy": ("test accuracy", "%"),
}


def chain(records: Iterable[Record], *, runs: Sequence[str] = (), title: str = "") -> alt.ConcatChart:
    """EMD against divergence, divergence against accuracy, EMD against accuracy: what is brushed in one shows in all.

    A point is a run (Zhao et al. 2018, Figures 2 to 4 and section 3); runs that did not measure their divergence are in
    the last panel only.
    """
    values = finite(records, "accuracy")
    brush = alt.selection_interval(name="brush")
    colour = by_run(values, runs)

    def panel(x: str, y: str) -> alt.Chart:
        def seen(field: str) -> str:
            return f"isValid(datum.{field})"

        chart: alt.Chart = (
            alt.Chart()
            .transform_filter(f"{seen(x)} && {seen(y)}")
            .mark_point(size=80, filled=True)
            .encode(
                x=alt.X(f"{x}:Q", title=AXES[x][0], axis=_axis(x), scale=_scale(x)),
                y=alt.Y(f"{y}:Q", title=AXES[y][0], axis=_axis(y), scale=_scale(y)),
                color=colour,
                opacity=alt.condition(brush, alt.value(0.95), alt.value(0.12)),
                tooltip=[
                    alt.Tooltip("run:N"),
                    alt.Tooltip("id:N"),
                    alt.Tooltip("seed:Q"),
                    alt.Tooltip("emd:Q", title="EMD", format=".3f"),
                    alt.Tooltip("divergence:Q", format=".1%"),
                    alt.Tooltip("accuracy:Q", format=".1%"),
                ],
            )
            .properties(width=WIDTH, height=HEIGHT, name=f"{x}_{y}")
        )
        return chart

    panels = [panel("emd", "accuracy")]
    if any(r["divergence"] is not None for r in values):
        panels = [panel("emd", "divergence"), panel("divergence", "accuracy"), *panels]
    chart: alt.ConcatChart = alt.concat(*panels, columns=len(panels), title=title)
    shared = alt.TopLevelSelectionParameter(
        name="brush", select={"type": "interval", "resolve": "global"}, views=[part.name for part in chart.concat]
    )
    chart.params = [shared]
    chart.data = theme.data(values, "chain")
    return chart


def _axis(field: str) -> alt.Axis:
    return alt.Axis(format=AXES[field][1], tickCount=5)


def _scale(field: str) -> alt.Scale:
    return alt.Scale(domain=[0, 2]) if field == "emd" else alt.Scale(zero=False, padding=8)
