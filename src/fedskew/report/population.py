"""The population: a bar a client, coloured by class (Hsu et al. 2019, Figure 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from fedskew.report.theme import PALETTE

MOST_CLIENTS = 30  # as many as the paper's figure shows
MOST_NAMES = 30  # a legend of more classes would hide the chart


def population(
    counts: NDArray[np.int64],
    classes: Sequence[str],
    *,
    clients: Sequence[str] | None = None,
    title: str = "",
) -> alt.Chart:
    """Label counts (N, C) as stacked bars; of more than 30 clients, 30 evenly picked ones, and the title says so."""
    number = len(counts)
    picked = np.unique(np.linspace(0, number - 1, min(number, MOST_CLIENTS)).round().astype(np.int64)).tolist()
    if len(picked) < number:
        title = f"{title} ({len(picked)} of {number:,} clients)".strip()
    names = [str(k) if clients is None else clients[k] for k in picked]
    if len(set(names)) < len(names):  # a bar a client, also where two have one name
        names = [f"{name} ({k})" for k, name in zip(picked, names, strict=True)]
    values: list[dict[str, Any]] = [
        {
            "client": name,
            "class": classes[c],
            "rank": c,
            "examples": int(counts[k, c]),
            "share": int(counts[k, c]) / int(counts[k].sum()),
        }
        for k, name in zip(picked, names, strict=True)
        for c in np.flatnonzero(counts[k]).tolist()
    ]
    few = len(classes) <= len(PALETTE)
    colours: dict[str, Any] = {"range": PALETTE[: len(classes)]} if few else {"scheme": "turbo"}
    scale = alt.Scale(domain=list(classes), **colours)
    legend = alt.Legend(orient="right", columns=1) if len(classes) <= MOST_NAMES else None
    axis = alt.Axis(ticks=False, domain=False, grid=False)
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=values))
        .mark_bar()
        .encode(
            x=alt.X("examples:Q", title="examples", stack="zero"),
            y=alt.Y("client:N", title="client", scale=alt.Scale(domain=names), axis=axis),
            color=alt.Color("class:N", sort=list(classes), scale=scale, legend=legend),
            order=alt.Order("rank:Q"),
            tooltip=[
                alt.Tooltip("client:N"),
                alt.Tooltip("class:N"),
                alt.Tooltip("examples:Q", format=","),
                alt.Tooltip("share:Q", format=".1%"),
            ],
        )
        .properties(width=420, height=alt.Step(14), title=title)
    )
    return chart
