"""Accuracy client by client: the distribution over clients on their own test examples, one row a curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedquilt.experiment.page.figure import WIDTH, Figure, styled

BINS = 20


def figure_of_client_accuracies(lines: Mapping[str, Sequence[float]]) -> Figure:
    """Draw the accuracies of clients, those of all repeats of a curve together."""
    caption = (
        "Clients by their accuracy on their own test examples after the last round. "
        "The black line is the mean over clients, the red dashed one the mean of the worst tenth."
    )
    return Figure("own-data", "Accuracy client by client", {"own data": _chart(lines)}, caption)


def worst_tenth(accuracies: Sequence[float]) -> float:
    """Return the mean accuracy of the worst tenth of clients, of one client at least.

    >>> worst_tenth([0.5] + [1.0] * 9), worst_tenth([0.75])
    (0.5, 0.75)
    """
    rising = np.sort(np.asarray(accuracies))
    return float(rising[: max(len(rising) // 10, 1)].mean())


def _chart(lines: Mapping[str, Sequence[float]]) -> Any:
    import altair as alt

    bars, marks = [], []
    for name, accuracies in lines.items():
        values = 100 * np.asarray(accuracies)
        counts, edges = np.histogram(values, bins=np.linspace(0, 100, BINS + 1))
        bars += [
            {
                "line": name,
                "from": float(low),
                "to": float(high),
                "share": round(100 * int(n) / len(values), 3),
                "clients": int(n),
            }
            for low, high, n in zip(edges[:-1], edges[1:], counts, strict=True)
            if n
        ]
        for words, value in (("mean over clients", values.mean()), ("worst tenth", 100 * worst_tenth(accuracies))):
            marks.append({"line": name, "mark": words, "value": round(float(value), 2)})
    x = alt.X("from:Q", title="accuracy on own test examples (%)", scale=alt.Scale(domain=[0, 100]))
    histogram = (
        alt.Chart()
        .mark_bar(color="#0072b2", opacity=0.75, stroke="white", strokeWidth=0.5)
        .transform_filter("isValid(datum.share)")
        .encode(
            x=x,
            x2="to:Q",
            y=alt.Y("share:Q", title="clients (%)", axis=alt.Axis(tickCount=3)),
            y2=alt.datum(0),
            tooltip=[
                alt.Tooltip("line:N", title="run"),
                alt.Tooltip("clients:Q"),
                alt.Tooltip("share:Q", title="share (%)"),
            ],
        )
    )
    shown = alt.Legend(title=None, orient="bottom", symbolType="stroke", symbolSize=300)
    domain = ["mean over clients", "worst tenth"]
    colour = alt.Color("mark:N", scale=alt.Scale(domain=domain, range=["#000000", "#d55e00"]), legend=shown)
    dash = alt.StrokeDash("mark:N", scale=alt.Scale(domain=domain, range=[[1, 0], [5, 3]]), legend=shown)
    rules = (
        alt.Chart()
        .mark_rule(strokeWidth=1.8)
        .transform_filter("isValid(datum.mark)")
        .encode(
            x=alt.X("value:Q", title="accuracy on own test examples (%)"),
            color=colour,
            strokeDash=dash,
            tooltip=[
                alt.Tooltip("line:N", title="run"),
                alt.Tooltip("mark:N", title=" "),
                alt.Tooltip("value:Q", title="accuracy (%)"),
            ],
        )
    )
    layered = alt.layer(histogram, rules, data=alt.InlineData(values=[*bars, *marks]))
    if len(lines) == 1:
        return styled(layered.properties(width=WIDTH, height=180))
    chart = layered.properties(width=WIDTH, height=70).facet(
        row=alt.Row(
            "line:N",
            sort=list(lines),
            title=None,
            header=alt.Header(labelAngle=0, labelAlign="left", labelOrient="top", labelAnchor="start", labelPadding=2),
        ),
        spacing=14,
    )
    return styled(chart)
