"""Charts of training as Altair definitions over plain records: accuracy, divergence, EMD against accuracy.

`runs` names all runs of a page in their order, so that a run keeps its colour from chart to chart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from fedskew.report.theme import PALETTE

Record = Mapping[str, Any]
Chart = alt.Chart | alt.LayerChart | alt.FacetChart  # what alt.layer may give

WIDTH, HEIGHT = 480, 280


def accuracy_curves(
    records: Iterable[Record], *, runs: Sequence[str] = (), level: tuple[str, float] | None = None, title: str = ""
) -> Chart:
    """Test accuracy over rounds, a line a `run`; its seeds give their mean within their range.

    `level` is the name and the height of a dashed line.
    """
    values = _finite(records, "accuracy")
    pick = alt.selection_point(fields=["run"], bind="legend")
    base = alt.Chart(alt.InlineData(values=values)).encode(
        x=alt.X("round:Q", title="communication round", axis=alt.Axis(tickMinStep=1, format="d")),
        color=_by_run(values, runs),
        opacity=alt.condition(pick, alt.value(1), alt.value(0.15)),
    )
    y = alt.Y("mean(accuracy):Q", title="test accuracy", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    band = base.mark_area(fillOpacity=0.18, clip=True).encode(y=alt.Y("min(accuracy):Q"), y2="max(accuracy):Q")
    line = base.mark_line(strokeWidth=2.5, clip=True).encode(y=y)
    dots = base.mark_point(size=70, filled=True, fillOpacity=0).encode(
        y=y,
        tooltip=[
            alt.Tooltip("run:N"),
            alt.Tooltip("round:Q"),
            alt.Tooltip("mean(accuracy):Q", title="accuracy", format=".1%"),
        ],
    )
    return _sized(alt.layer(band, line, dots, *_level(level)).add_params(pick), title)


def divergence_by_layer(
    records: Iterable[Record],
    *,
    measure: str = "weight divergence",
    percent: bool = False,
    runs: Sequence[str] = (),
    title: str = "",
) -> Chart:
    """Grouped bars of `value` for each `layer`, one colour a `run` (Zhao et al. 2018, Figure 4)."""
    values = _finite(records, "value")
    chart = (
        alt.Chart(alt.InlineData(values=values))
        .mark_bar()
        .encode(
            x=alt.X("layer:N", title="layer", sort=_order(values, "layer"), scale=alt.Scale(paddingInner=0.25)),
            xOffset=alt.XOffset("run:N", sort=_order(values, "run")),
            y=alt.Y("mean(value):Q", title=measure, axis=alt.Axis(format="%" if percent else "~g")),
            color=_by_run(values, runs),
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
    values = _finite(records, "accuracy")
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
            color=_by_run(values, runs, legend=False),
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
    values = _finite(records, "value")
    form = "%" if percent else "~g"
    axis = alt.X("x:Q", title=x, scale=alt.Scale(type="log")) if log else alt.X("x:Q", title=x)
    if steps:
        values = [{**r, "x": f"{r['x']:g}"} for r in values]
        axis = alt.X("x:O", title=x, scale=alt.Scale(domain=[f"{v:g}" for v in steps]), axis=alt.Axis(labelAngle=0))
    base = alt.Chart(alt.InlineData(values=values)).encode(x=axis, color=_by_run(values, ()))
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
    values = _finite(records, "accuracy")
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
            color=_by_run(values, ()),
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
    values = _finite(records, "value")
    base = alt.Chart(alt.InlineData(values=values)).encode(
        x=alt.X("run:N", title=None, sort=_order(values, "run"), axis=alt.Axis(labelAngle=0)),
        y=alt.Y("value:Q", title=y, axis=alt.Axis(format=".1%"), scale=alt.Scale(zero=False)),
    )
    box = base.mark_boxplot(size=44, color=PALETTE[0], opacity=0.6)
    return _sized(alt.layer(box, base.mark_point(size=45, filled=True, color=PALETTE[1])), title)


def _by_run(values: Sequence[Record], runs: Sequence[str], *, legend: bool = True) -> alt.Color:
    names = _order(values, "run")
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


def _order(values: Sequence[Record], field: str) -> list[str]:
    return list(dict.fromkeys(str(r[field]) for r in values))


def _finite(records: Iterable[Record], field: str) -> list[dict[str, Any]]:
    # A round that was not evaluated, or one that diverged, is a gap and not a zero.
    return [dict(r) for r in records if r[field] is not None and math.isfinite(r[field])]


def _sized(chart: Chart, title: str) -> Chart:
    sized: Chart = chart.properties(width=WIDTH, height=HEIGHT)
    return sized.properties(title=title) if title else sized
