"""Charts of what runs reached: accuracy against EMD, or against any number that was varied; boxes; pairs tried."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import altair as alt

from fedskew.report.parts import Chart, Level, Record, by_run, finite, level_line, order, sized
from fedskew.report.theme import PALETTE


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
    room = alt.expr("width / 2 - 12")  # a name stands on the side where there is more of it
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
        base.transform_filter("datum.emd < 1").mark_text(align="left", dx=9, dy=11, limit=room).encode(text="run:N"),
        base.transform_filter("datum.emd >= 1").mark_text(align="right", dx=-9, dy=5, limit=room).encode(text="run:N"),
    ]
    return sized(alt.layer(*layers, *level_line(None if baseline is None else ("SGD", baseline))), title)


def against(
    records: Iterable[Record],
    *,
    x: str,
    y: str = "test accuracy",
    percent: bool = True,
    level: Level | None = None,
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
    return sized(alt.layer(line, bars, dots, *level_line(level)), title)


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
    return sized(alt.layer(dots, *(hairs if best else [])), title)


def boxes(records: Iterable[Record], *, y: str = "test accuracy", title: str = "") -> Chart:
    """A box plot of `value` for each `run`, every point beside it."""
    values = finite(records, "value")
    base = alt.Chart(alt.InlineData(values=values)).encode(
        x=alt.X("run:N", title=None, sort=order(values, "run"), axis=alt.Axis(labelAngle=0)),
        y=alt.Y("value:Q", title=y, axis=alt.Axis(format=".1%"), scale=alt.Scale(zero=False)),
    )
    box = base.mark_boxplot(size=44, color=PALETTE[0], opacity=0.6)
    return sized(alt.layer(box, base.mark_point(size=45, filled=True, color=PALETTE[1])), title)
