"""Who holds which class: one bar per client (as Hsu 2019's Figure 1), and its size below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedquilt.experiment.holdings import Holdings
from fedquilt.experiment.page.figure import WIDTH, Figure, styled
from fedquilt.experiment.page.palette import LISTED, class_colours

COLUMN = 13
"""Classes in one column of a legend."""


def figure_of_clients(populations: Mapping[str, Holdings]) -> Figure:
    """Draw who holds what, one chart for every population."""
    charts = {
        label: clients_chart(held, label if len(populations) > 1 else None) for label, held in populations.items()
    }
    caption = "One bar is one client, sorted by the class of which it holds most; colours are classes."
    return Figure("clients", "Who holds what", charts, caption)


def clients_chart(held: Holdings, title: str | None = None) -> Any:
    """Draw the shares of classes that clients hold, above the numbers of their examples."""
    import altair as alt

    order = _sorted(held.counts)
    every = f"{len(order):,} of {held.clients:,} clients" if len(order) < held.clients else f"{held.clients:,} clients"
    sizes = [
        {"position": position, "client": held.shown[k], "examples": sum(held.counts[k].values())}
        for position, k in enumerate(order)
    ]
    width = max(WIDTH, min(7 * len(order), 700))
    positions = alt.Scale(domain=list(range(len(order))), paddingInner=0.05 if len(order) <= 60 else 0, paddingOuter=0)
    wide = max((row["examples"] for row in sizes), default=1) > 30 * min((row["examples"] for row in sizes), default=1)
    least = min((row["examples"] for row in sizes), default=1)
    low = 0.7 * least if wide else 0  # a bar on a log scale has to begin somewhere
    tall = alt.Scale(type="log", domainMin=low) if wide else alt.Scale()
    bars = (
        alt.Chart(alt.InlineData(values=sizes))
        .mark_bar(color="#6b7280")
        .encode(
            x=alt.X("position:O", title=f"{every}, sorted by their largest class", scale=positions).axis(
                labels=False, ticks=False, domain=True
            ),
            y=alt.Y("examples:Q", title="examples", scale=tall, axis=alt.Axis(tickCount=3, format="~s", grid=False)),
            y2=alt.datum(low),
            tooltip=[alt.Tooltip("client:N"), alt.Tooltip("examples:Q", format=",")],
        )
        .properties(width=width, height=60)
    )
    if not held.classes:
        return styled(bars.properties(height=160), title)
    rows = []
    for position, k in enumerate(order):
        total, low = sum(held.counts[k].values()), 0.0
        for label in sorted(held.counts[k]):
            share = 100 * held.counts[k][label] / total
            rows.append(
                {"position": position, "client": held.shown[k], "class": held.name_of(label), "number": label}
                | {
                    "low": round(low, 3),
                    "high": round(low + share, 3),
                    "examples": held.counts[k][label],
                    "share": round(share, 2),
                }
            )
            low += share
    names = [held.name_of(label) for label in range(held.classes)]
    colour, legend = _class_colours(names)
    stacked = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_bar(stroke="white", strokeWidth=0.3 if held.classes <= LISTED else 0)
        .encode(
            x=alt.X("position:O", axis=None, scale=positions),
            y=alt.Y("low:Q", title="share of classes (%)", scale=alt.Scale(domain=[0, 100])).axis(grid=False),
            y2="high:Q",
            color=colour,
            tooltip=[
                alt.Tooltip("client:N"),
                alt.Tooltip("class:N"),
                alt.Tooltip("examples:Q", format=","),
                alt.Tooltip("share:Q", title="share (%)"),
            ],
        )
        .properties(width=width, height=200)
    )
    chart = alt.vconcat(stacked, bars, spacing=8).resolve_scale(color="independent")
    return styled(chart, title, {"legend": legend} if legend else None)


def _class_colours(names: Sequence[str]) -> tuple[Any, dict[str, Any] | None]:
    """Return the colours of classes: a legend of all names, or a scale of the numbers of very many."""
    import altair as alt

    if len(names) > LISTED:
        bar = alt.Legend(title="class", gradientLength=200, format="d", tickCount=6)
        return alt.Color("number:Q", scale=alt.Scale(scheme="turbo", domain=[0, len(names) - 1]), legend=bar), None
    colours = class_colours(len(names))
    legend = alt.Legend(title="class", columns=-(-len(names) // COLUMN), symbolType="square", symbolLimit=0)
    scale = alt.Scale(domain=list(names), range=colours)
    entries = [{"name": name, "colour": colour} for name, colour in zip(names, colours, strict=True)]
    return alt.Color("class:N", scale=scale, legend=legend, sort=None), {"field": "class", "entries": entries}


def _sorted(counts: Sequence[Mapping[int, int]]) -> list[int]:
    """Order clients by their largest class, and those of one class by its share."""

    def key(k: int) -> tuple[int, float]:
        total = sum(counts[k].values())
        label = max(sorted(counts[k]), key=lambda each: counts[k][each])
        return label, -counts[k][label] / total

    return sorted(np.arange(len(counts)).tolist(), key=key)
