"""The population: a bar a client, coloured by class (Hsu et al. 2019, Figure 1); how EMD and size are spread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedskew.report import theme
from fedskew.report.records import evenly
from fedskew.report.theme import PALETTE

MOST_CLIENTS = 30  # as many as the paper's figure shows
MOST_NAMES = 30  # a legend of more classes would hide the chart
BINS = 20
BAR = 14  # pixels; as a step, Vega would not let the width follow a page

Record = Mapping[str, Any]


def population(
    counts: NDArray[np.int64],
    classes: Sequence[str],
    *,
    clients: Sequence[str] | None = None,
    title: str = "",
) -> alt.Chart:
    """Label counts (N, C) as stacked bars; of more than 30 clients, 30 evenly picked ones, and the title says so."""
    values = holdings(counts, classes, clients=clients)
    if (shown := len({r["place"] for r in values})) < len(counts):
        title = f"{title} ({shown} of {len(counts):,} clients)".strip()
    return bars(values, classes, title=title)


def holdings(
    counts: NDArray[np.int64], classes: Sequence[str], *, clients: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """A record for each client and class that it holds; of more than 30 clients, 30 evenly picked ones."""
    number = len(counts)
    picked = evenly(number, MOST_CLIENTS)
    names = [str(k) if clients is None else clients[k] for k in picked]
    if len(set(names)) < len(names):  # a bar a client, also where two have one name
        names = [f"{name} ({k})" for k, name in zip(picked, names, strict=True)]
    return [
        {
            "client": name,
            "place": k,
            "class": classes[c],
            "rank": c,
            "examples": int(counts[k, c]),
            "share": int(counts[k, c]) / max(int(counts[k].sum()), 1),
        }
        for k, name in zip(picked, names, strict=True)
        for c in np.flatnonzero(counts[k]).tolist() or [0]  # a client without examples keeps its line
    ]


def bars(records: Iterable[Record], classes: Sequence[str], *, title: str = "") -> alt.Chart:
    """Stacked bars of `examples` by `class`, a bar a `client`."""
    values = [dict(r) for r in records]
    few = len(classes) <= len(PALETTE)
    colours: dict[str, Any] = {"range": PALETTE[: len(classes)]} if few else {"scheme": "turbo"}
    scale = alt.Scale(domain=list(classes), **colours)
    legend = alt.Legend(orient="right", columns=1) if len(classes) <= MOST_NAMES else None
    lines = len(classes) if legend else 1  # of the legend, which must find room beside few bars
    axis = alt.Axis(ticks=False, domain=False, grid=False)
    chart: alt.Chart = (
        alt.Chart(theme.data(values, "population"))
        .mark_bar()
        .encode(
            x=alt.X("examples:Q", title="examples", stack="zero"),
            y=alt.Y("client:N", title="client", sort=alt.EncodingSortField("place", op="min"), axis=axis),
            color=alt.Color("class:N", sort=list(classes), scale=scale, legend=legend),
            order=alt.Order("rank:Q"),
            tooltip=[
                alt.Tooltip("client:N"),
                alt.Tooltip("class:N"),
                alt.Tooltip("examples:Q", format=","),
                alt.Tooltip("share:Q", format=".1%"),
            ],
        )
        .properties(width=420, height=BAR * max(len({r["client"] for r in values}), lines), title=title)
    )
    return chart


def emd_bins(emd: ArrayLike) -> list[dict[str, Any]]:
    """How many clients have which EMD, in steps of a tenth from 0 to 2."""
    return _binned(emd, np.linspace(0, 2, BINS + 1))


def size_bins(sizes: NDArray[np.int64]) -> list[dict[str, Any]]:
    """How many clients hold how many examples, in equal steps of whole examples from 0 to the largest."""
    step = -(-(int(sizes.max(initial=0)) + 1) // BINS)
    return _binned(sizes, np.arange(BINS + 1) * step)


def histogram(records: Iterable[Record], *, x: str, name: str = "histogram", title: str = "") -> alt.Chart:
    """How many `clients` are from `low` to `high`."""
    chart: alt.Chart = (
        alt.Chart(theme.data([dict(r) for r in records], name))
        .mark_bar(color=PALETTE[1], binSpacing=1)
        .encode(
            x=alt.X("low:Q", bin="binned", title=x, axis=alt.Axis(tickCount=5, grid=False)),
            x2="high:Q",
            y=alt.Y("clients:Q", title="clients", axis=theme.whole_numbers()),
            tooltip=[
                alt.Tooltip("low:Q", title="from"),
                alt.Tooltip("high:Q", title="below"),
                alt.Tooltip("clients:Q", format=","),
            ],
        )
        .properties(width=320, height=180, title=title)
    )
    return chart


def _binned(values: ArrayLike, edges: NDArray[Any]) -> list[dict[str, Any]]:
    """Half-open bins, the last one closed. A value a rounding error below an edge belongs above it."""
    clients, _ = np.histogram(np.minimum(np.asarray(values, np.float64) + 1e-9, edges[-1]), edges)
    return [
        {"low": round(float(low), 6), "high": round(float(high), 6), "clients": int(n)}
        for low, high, n in zip(edges[:-1], edges[1:], clients, strict=True)
    ]
