"""Charts of training as Altair definitions over plain records: curves, layers, classes.

`runs` names all runs of a page in their order, so that a run keeps its colour from chart to chart. What grows while a
run trains is one named set of records, which a live page can replace (`view.data(name, records)`) without a new chart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt

from fedskew.report import theme
from fedskew.report.parts import Chart, Level, Record, by_run, finite, level_line, order, sized
from fedskew.report.records import banded
from fedskew.report.theme import PALETTE

PANEL, PANEL_HEIGHT = 220, 150  # one of several


def accuracy_curves(
    records: Iterable[Record], *, runs: Sequence[str] = (), level: Level | None = None, title: str = ""
) -> Chart:
    """Test accuracy over rounds, a line a `run`; its seeds give their mean within their range.

    `level` is the name and the height of a dashed line.
    """
    points = ((r["run"], r["round"], r["accuracy"]) for r in records if r["accuracy"] is not None)
    return curves(banded(points), y="test accuracy", percent=True, domain=(0, 1), runs=runs, level=level, title=title)


def curves(
    records: Iterable[Record],
    *,
    y: str,
    percent: bool = False,
    domain: tuple[float, float] | None = None,
    facet: str = "",
    runs: Sequence[str] = (),
    level: Level | None = None,
    title: str = "",
    name: str = "curves",
    legend: bool = True,
) -> Chart:
    """A `value` over rounds, a line a `run` with a band from `low` to `high`; a panel for each `facet`, if given."""
    values = finite(records, "value")
    pick = alt.selection_point(name="pick", fields=["run"])
    shared: dict[str, Any] = {
        "x": alt.X("round:Q", title="communication round", axis=theme.whole_numbers()),
        "color": by_run(values, runs, legend=legend),
        "opacity": alt.condition(pick, alt.value(1), alt.value(0.15)),
    }
    if len(order(values, "run")) > len(PALETTE):
        shared["strokeDash"] = _dashes(values, runs)
    form = "%" if percent else "~g"
    height = alt.Y("value:Q", title=y, axis=alt.Axis(format=form, tickCount=5), scale=_reach(values, domain))
    line = alt.Chart().mark_line(strokeWidth=2.5, clip=True).encode(y=height)
    band = alt.Chart().mark_area(fillOpacity=0.18, clip=True, strokeOpacity=0).encode(y=alt.Y("low:Q"), y2="high:Q")
    dots = (
        alt.Chart()
        .mark_point(size=70, filled=True, fillOpacity=0, strokeOpacity=0, clip=True)
        .encode(
            y=height,
            tooltip=[
                alt.Tooltip("run:N"),
                *([alt.Tooltip(f"{facet}:N")] if facet else []),
                alt.Tooltip("round:Q"),
                alt.Tooltip("value:Q", title=y.removeprefix("test "), format=".1%" if percent else ".3g"),
                alt.Tooltip("seeds:Q", title="seeds"),
            ],
        )
    )
    parts = (band.properties(name="lines"), line, dots)
    if level is None:  # said once for the three of them: sixty names in three places make a page large
        layers = alt.layer(*parts).encode(**shared)
    else:
        layers = alt.layer(*(part.encode(**shared) for part in parts), *level_line(level))
    chart: Chart
    if facet:
        panels = [
            layers.transform_filter(alt.FieldEqualPredicate(field=facet, equal=part)).properties(
                width=PANEL, height=PANEL_HEIGHT, title=part
            )
            for part in order(values, facet)
        ]
        chart = alt.concat(*panels, columns=2, title=title).resolve_scale(y="shared")
        view = chart.concat[0].layer[0].name if panels else ""  # Altair has given every panel's a name of its own
    else:
        chart, view = sized(layers, title), "lines"
    chart.params = [_legend_pick(view, bound=legend)]
    chart.data = theme.data(values, name)
    return chart


def per_class(records: Iterable[Record], *, title: str = "") -> Chart:
    """The accuracy of each `class` over rounds as a heat map, dark where the network knows nothing of a class."""
    values = finite(records, "accuracy")
    chart = (
        alt.Chart()
        .mark_rect()
        .encode(
            x=alt.X(
                "round:Q",
                title="communication round",
                axis=theme.whole_numbers(grid=False),
                scale=alt.Scale(nice=False, zero=False),
            ),
            x2="until:Q",
            y=alt.Y("class:N", title="class", sort=alt.EncodingSortField("rank", op="min"), axis=alt.Axis(grid=False)),
            color=alt.Color(
                "accuracy:Q",
                scale=alt.Scale(scheme="viridis", domain=[0, 1]),
                legend=alt.Legend(title="test accuracy", format="%", orient="bottom", gradientLength=200),
            ),
            tooltip=[
                alt.Tooltip("class:N"),
                alt.Tooltip("round:Q"),
                alt.Tooltip("accuracy:Q", format=".1%"),
            ],
        )
    )
    drawn = sized(chart, title)
    drawn.data = theme.data(values, "per_class")
    return drawn


def divergence_by_layer(
    records: Iterable[Record],
    *,
    measure: str = "weight divergence",
    percent: bool = False,
    runs: Sequence[str] = (),
    title: str = "",
) -> Chart:
    """Grouped bars of `value` for each `layer`, one colour a `run` (Zhao et al. 2018, Figure 4)."""
    values = finite(records, "value")
    chart = (
        alt.Chart(alt.InlineData(values=values))
        .mark_bar()
        .encode(
            x=alt.X("layer:N", title="layer", sort=order(values, "layer"), scale=alt.Scale(paddingInner=0.25)),
            xOffset=alt.XOffset("run:N", sort=order(values, "run")),
            y=alt.Y("mean(value):Q", title=measure, axis=alt.Axis(format="%" if percent else "~g")),
            color=by_run(values, runs),
            tooltip=[
                alt.Tooltip("run:N"),
                alt.Tooltip("layer:N"),
                alt.Tooltip("mean(value):Q", title=measure, format=".1%" if percent else ".3g"),
            ],
        )
    )
    return sized(chart, title)


def _legend_pick(view: str, *, bound: bool) -> alt.TopLevelSelectionParameter:
    """What is chosen in the legend, for all panels; added to each of them, Altair would warn that it is the same."""
    bind: dict[str, Any] = {"bind": "legend"} if bound else {}
    select = {"type": "point", "fields": ["run"]}
    return alt.TopLevelSelectionParameter(name="pick", select=select, views=[view], **bind)


def _dashes(values: Sequence[Record], runs: Sequence[str]) -> alt.StrokeDash:
    """Where colours come round again, the second round is dashed and the third dotted."""
    names = order(values, "run")
    every = list(dict.fromkeys([*runs, *names]))
    patterns = [[1, 0], [7, 3], [2, 2]]
    dashes = [patterns[every.index(name) // len(PALETTE) % len(patterns)] for name in names]
    return alt.StrokeDash("run:N", sort=names, scale=alt.Scale(domain=names, range=dashes), legend=alt.Legend())


def _reach(values: Sequence[Record], domain: tuple[float, float] | None) -> alt.Scale:
    """A fixed domain, else what there is; a loss that falls, or explodes, through decades is read on a logarithm."""
    if domain is not None:
        return alt.Scale(domain=list(domain))
    heights = sorted(r["value"] for r in values)
    if heights and heights[0] > 0 and heights[-1] > 20 * heights[len(heights) // 2]:
        return alt.Scale(type="log")
    return alt.Scale(zero=False)
