"""Charts of training as Altair definitions over plain records: curves, layers, classes, EMD against accuracy.

`runs` names all runs of a page in their order, so that a run keeps its colour from chart to chart. What grows while a
run trains is one named set of records, which a live page can replace (`view.data(name, records)`) without a new chart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from fedskew.report import theme
from fedskew.report.records import banded
from fedskew.report.theme import PALETTE

Record = Mapping[str, Any]
Chart = alt.Chart | alt.LayerChart | alt.FacetChart | alt.ConcatChart  # what alt.layer and alt.concat may give

WIDTH, HEIGHT = 480, 280
PANEL, PANEL_HEIGHT = 220, 150  # one of several


def accuracy_curves(
    records: Iterable[Record], *, runs: Sequence[str] = (), level: tuple[str, float] | None = None, title: str = ""
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
    level: tuple[str, float] | None = None,
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
        layers = alt.layer(*(part.encode(**shared) for part in parts), *_level(level))
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
        chart, view = _sized(layers, title), "lines"
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
    sized = _sized(chart, title)
    sized.data = theme.data(values, "per_class")
    return sized


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
    return _sized(chart, title)


def emd_accuracy(
    records: Iterable[Record], *, baseline: float | None = None, runs: Sequence[str] = (), title: str = ""
) -> Chart:
    """Accuracy against EMD: a named point a `run`, a thread an `algorithm`; `baseline` is SGD's accuracy."""
    values = finite(records, "accuracy")
    base = alt.Chart(alt.InlineData(values=values)).encode(
        x=alt.X(
            "emd:Q",
            title="EMD of the clients' labels",
            scale=alt.Scale(domain=[0, 2]),
            axis=alt.Axis(tickCount=5),
        ),
        y=alt.Y("accuracy:Q", title="test accuracy", axis=alt.Axis(format="%"), scale=alt.Scale(zero=False)),
    )
    layers: list[alt.Chart] = [
        base.mark_line(strokeWidth=1.5, opacity=0.5, color=PALETTE[0]).encode(detail="algorithm:N"),
        base.mark_point(size=90, filled=True, opacity=1).encode(
            color=by_run(values, runs, legend=False),
            tooltip=[
                alt.Tooltip("run:N"),
                alt.Tooltip("emd:Q", title="EMD", format=".3f"),
                alt.Tooltip("accuracy:Q", format=".1%"),
            ],
        ),
        # A name stands on the side where there is room for it.
        base.transform_filter("datum.emd < 1").mark_text(align="left", dx=9, dy=11).encode(text="run:N"),
        base.transform_filter("datum.emd >= 1").mark_text(align="right", dx=-9, dy=5).encode(text="run:N"),
    ]
    return _sized(alt.layer(*layers, *_level(None if baseline is None else ("SGD", baseline))), title)


def against(
    records: Iterable[Record],
    *,
    x: str,
    y: str = "test accuracy",
    percent: bool = True,
    level: tuple[str, float] | None = None,
    steps: Sequence[float] = (),
    log: bool = False,
    title: str = "",
) -> Chart:
    """A value against a number `x`, a line a `run`, with bars from `low` to `high`.

    `steps` are all values of x, to be set side by side in this order; `level` is a dashed line, its name and height.
    """
    values = finite(records, "value")
    form = "%" if percent else "~g"
    axis = alt.X("x:Q", title=x, scale=alt.Scale(type="log")) if log else alt.X("x:Q", title=x)
    if steps:
        values = [{**r, "x": f"{r['x']:g}"} for r in values]
        axis = alt.X("x:O", title=x, scale=alt.Scale(domain=[f"{v:g}" for v in steps]), axis=alt.Axis(labelAngle=0))
    base = alt.Chart(alt.InlineData(values=values)).encode(x=axis, color=by_run(values, ()))
    line = base.mark_line(strokeWidth=2).encode(
        y=alt.Y("value:Q", title=y, axis=alt.Axis(format=form), scale=alt.Scale(zero=False))
    )
    dots = base.mark_point(size=60, filled=True, opacity=1).encode(
        y="value:Q",
        tooltip=[
            alt.Tooltip("run:N"),
            alt.Tooltip("x:O" if steps else "x:Q", title=x),
            alt.Tooltip("value:Q", title=y, format=".3~%" if percent else ".3g"),
        ],
    )
    bars = base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q"), y2="high:Q")
    return _sized(alt.layer(line, bars, dots, *_level(level)), title)


def sensitivity(records: Iterable[Record], *, title: str = "") -> Chart:
    """Accuracy against `effective`, a dot a pair of `lr` (its size) and `run`, the best one crossed (Hsu, Figure 6)."""
    values = finite(records, "accuracy")
    base = alt.Chart(alt.InlineData(values=values)).encode(
        x=alt.X("effective:Q", title="effective learning rate, lr / (1 - beta)", scale=alt.Scale(type="log")),
        y=alt.Y("accuracy:Q", title="test accuracy", axis=alt.Axis(format="%"), scale=alt.Scale(zero=False)),
    )
    rates = sorted({r["lr"] for r in values})
    sizes = alt.Scale(domain=[f"{lr:g}" for lr in rates], range=[40 + 50 * i for i in range(len(rates))])
    dots = (
        base.transform_calculate(rate="format(datum.lr, '~g')")
        .mark_point(filled=True, opacity=0.75)
        .encode(
            color=by_run(values, ()),
            size=alt.Size("rate:O", scale=sizes, legend=alt.Legend(title="lr", orient="right", columns=1)),
            tooltip=[
                alt.Tooltip("run:N"),
                alt.Tooltip("lr:Q", format="~g"),
                alt.Tooltip("effective:Q", format=".3~g"),
                alt.Tooltip("accuracy:Q", format=".1%"),
            ],
        )
    )
    best = max(values, key=lambda r: r["accuracy"], default=None)
    crossed = alt.Chart(alt.InlineData(values=[best] if best else []))
    hairs = [
        crossed.mark_rule(strokeDash=[3, 3]).encode(x="effective:Q"),
        crossed.mark_rule(strokeDash=[3, 3]).encode(y="accuracy:Q"),
    ]
    return _sized(alt.layer(dots, *(hairs if best else [])), title)


def boxes(records: Iterable[Record], *, y: str = "test accuracy", title: str = "") -> Chart:
    """A box plot of `value` for each `run`, every point beside it."""
    values = finite(records, "value")
    base = alt.Chart(alt.InlineData(values=values)).encode(
        x=alt.X("run:N", title=None, sort=order(values, "run"), axis=alt.Axis(labelAngle=0)),
        y=alt.Y("value:Q", title=y, axis=alt.Axis(format=".1%"), scale=alt.Scale(zero=False)),
    )
    box = base.mark_boxplot(size=44, color=PALETTE[0], opacity=0.6)
    return _sized(alt.layer(box, base.mark_point(size=45, filled=True, color=PALETTE[1])), title)


def by_run(values: Sequence[Record], runs: Sequence[str], *, legend: bool = True) -> alt.Color:
    """The run's colour: `runs` names all of a page in their order, and only those drawn are in the legend."""
    names = order(values, "run")
    colour = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(dict.fromkeys([*runs, *names]))}
    scale = alt.Scale(domain=names, range=[colour[name] for name in names])
    return alt.Color("run:N", sort=names, scale=scale, legend=alt.Legend() if legend else None)


def _level(level: tuple[str, float] | None) -> list[alt.Chart]:
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


def _sized(chart: Chart, title: str) -> Chart:
    sized: Chart = chart.properties(width=WIDTH, height=HEIGHT)
    return sized.properties(title=title) if title else sized
