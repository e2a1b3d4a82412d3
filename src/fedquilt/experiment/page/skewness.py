"""Accuracy against skew: what each curve reached, over how far clients' classes are from all clients' (Hsu 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedquilt.experiment.page.figure import HEIGHT, WIDTH, Figure, line_scales, styled


@dataclass(frozen=True)
class Reached:
    """What a method reached on a population: the population's EMD, and the mean and spread over repeats."""

    line: str
    emd: float
    value: float
    spread: float | None
    of: str


def figure_of_skew(points: Sequence[Reached], measured: str) -> Figure:
    """Draw what was reached over the EMD of the populations; `measured` says what, such as "best test accuracy (%)"."""
    import altair as alt

    names = list(dict.fromkeys(point.line for point in points))
    rows = [
        {"line": point.line, "emd": round(point.emd, 4), "value": point.value, "of": point.of}
        | (
            {}
            if point.spread is None
            else {"low": point.value - point.spread, "high": point.value + point.spread, "spread": point.spread}
        )
        for point in points
    ]
    colour, dash, legend = line_scales(names)
    x = alt.X("emd:Q", title="EMD of clients' classes from all clients'", scale=alt.Scale(domain=[0, 2]))
    y = alt.Y("value:Q", title=measured, scale=alt.Scale(zero=False))
    base = alt.Chart(alt.InlineData(values=rows)).encode(x=x, color=colour)
    tooltip = [
        alt.Tooltip("line:N", title="method"),
        alt.Tooltip("of:N", title="run"),
        alt.Tooltip("emd:Q", title="EMD", format=".3f"),
        alt.Tooltip("value:Q", title=measured, format=".2f"),
    ]
    layers = [base.mark_line(strokeWidth=1.4).encode(y=y, strokeDash=dash)]
    if any("low" in row for row in rows):
        bars = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=1.4)
        layers.append(bars.encode(y=alt.Y("low:Q", title=measured, scale=alt.Scale(zero=False)), y2="high:Q"))
        tooltip.append(alt.Tooltip("spread:Q", title="± std", format=".2f"))
    layers.append(base.mark_point(filled=True, size=55, opacity=1).encode(y=y, tooltip=tooltip))
    chart = alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)
    caption = "0: every client has the classes of all together; 2: no client shares a class with the rest (Hsu 2020)."
    return Figure("emd", "Accuracy against skew", {"emd": styled(chart, about={"legend": legend})}, caption)
