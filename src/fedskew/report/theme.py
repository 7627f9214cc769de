"""One look for every chart: a file has dark ink on white paper, a page lends its own ink, light or dark."""

from __future__ import annotations

from typing import Any

import altair as alt

# Each colour keeps a contrast of 3:1 or more against white and against the dark page (WCAG 1.4.11).
PALETTE = (
    "#7a828c", "#0f76b8", "#b07d00", "#d1495b", "#0f9d76",
    "#9661c9", "#d06a1c", "#b8569c", "#6a8f1f", "#2f93a8",
)  # fmt: skip
INK = "#1f2328"
PAPER = "#ffffff"
FONT = "Arial, Helvetica, sans-serif"  # the metrics that vl-convert carries with it

Spec = dict[str, Any]


def spec(chart: alt.TopLevelMixin, *, ink: str = INK, paper: str = PAPER, validate: bool = True) -> Spec:
    """The chart as a Vega-Lite document in this look; without `$schema`, so that it names no host."""
    bare: Any = chart
    records = getattr(chart, "data", None)
    if isinstance(records, alt.InlineData):  # Altair checks every record against its schema, which takes seconds
        bare = bare.copy(deep=False)
        bare.data = alt.NamedData(name="records")
    document: Spec = bare.to_dict(validate=validate)
    if isinstance(records, alt.InlineData):
        document["data"] = {key: records[key] for key in ("name", "values") if records[key] is not alt.Undefined}
    document.pop("$schema", None)
    _tell_apart(document, set())
    document["config"] = config(ink, paper)
    return document


def _tell_apart(part: Any, taken: set[str]) -> None:
    """Charts put side by side may each have records of one name; Vega takes a name once."""
    if isinstance(part, list):
        for value in part:
            _tell_apart(value, taken)
    elif isinstance(part, dict):
        source = part.get("data")
        if isinstance(source, dict) and "values" in source and "name" in source:
            name = source["name"]
            free = next(n for n in (name, *(f"{name}{i}" for i in range(2, len(taken) + 3))) if n not in taken)
            part["data"] = source | {"name": free}
            taken.add(free)
        for key, value in part.items():
            if key not in ("data", "datasets"):
                _tell_apart(value, taken)


def data(values: list[dict[str, Any]], name: str = "records") -> alt.InlineData:
    """Records under a name, for a live page to replace; given last of all, since Altair copies and checks them."""
    inline = alt.InlineData(name=name, values=[])
    inline["values"] = values
    return inline


def whole_numbers(*, grid: bool = True) -> alt.Axis:
    """An axis of rounds or clients; Vega would still put a tick at one half where there are few of them."""
    return alt.Axis(tickMinStep=1, grid=grid, labelExpr="datum.value % 1 ? '' : format(datum.value, ',d')")


def config(ink: str = INK, paper: str = PAPER) -> Spec:
    """Vega-Lite's settings; `currentColor` as ink follows the text colour of a page."""
    words = {"labelColor": ink, "titleColor": ink, "labelFontSize": 12, "titleFontSize": 12}
    return {
        "background": paper,
        "font": FONT,
        "padding": 8,
        "view": {"stroke": None, "continuousWidth": 480, "continuousHeight": 280, "discreteHeight": 280},
        "axis": {
            **words,
            "titleFontWeight": "normal",
            "titlePadding": 8,
            "grid": True,
            "gridColor": ink,
            "gridOpacity": 0.12,
            "domainColor": ink,
            "domainOpacity": 0.45,
            "tickColor": ink,
            "tickOpacity": 0.45,
        },
        "axisXDiscrete": {"grid": False, "labelAngle": 0},
        "legend": {**words, "orient": "bottom", "title": None, "columns": 2, "labelLimit": 230},
        "header": words,
        "title": {"color": ink, "anchor": "start", "fontSize": 14, "offset": 10},
        "text": {"color": ink, "fontSize": 12},
        "rule": {"color": ink},
        "range": {"category": list(PALETTE)},
    }
