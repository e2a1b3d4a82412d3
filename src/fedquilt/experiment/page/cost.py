"""What runs cost: megabytes sent, seconds, local steps; of all rounds, or of those up to the target."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fedquilt.experiment.page.figure import WIDTH, Figure, styled

COSTS = {"megabytes": "MB sent, up and down", "seconds": "seconds of training", "steps": "local steps of all clients"}


def figure_of_cost(lines: Mapping[str, Sequence[Mapping[str, float]]]) -> Figure:
    """Draw what the runs of every curve cost, one chart for each kind of cost."""
    kinds = [kind for kind in COSTS if any(kind in run for runs in lines.values() for run in runs)]
    charts = {COSTS[kind]: _chart(lines, kind) for kind in kinds}
    return Figure(
        "cost", "Cost", charts, "Of all rounds that were run; the mean over repeats, with one standard deviation."
    )


def _chart(lines: Mapping[str, Sequence[Mapping[str, float]]], kind: str) -> Any:
    import altair as alt

    rows = []
    for name, runs in lines.items():
        values = [run[kind] for run in runs if kind in run]
        if not values:
            continue
        mean = statistics.fmean(values)
        row: dict[str, Any] = {"line": name, "value": float(f"{mean:.6g}")}
        if len(values) > 1:
            std = statistics.stdev(values)
            row |= {"low": max(mean - std, 0.0), "high": mean + std, "spread": float(f"{std:.3g}")}
        rows.append(row)
    y = alt.Y(
        "line:N",
        sort=[row["line"] for row in rows],
        title=None,
        axis=alt.Axis(labelLimit=230, ticks=False, domain=False),
    )
    x = alt.X("value:Q", title=COSTS[kind], axis=alt.Axis(format="~s" if kind == "steps" else ",~f"))
    tooltip = [alt.Tooltip("line:N", title="run"), alt.Tooltip("value:Q", title=COSTS[kind], format=",.1f")]
    base = alt.Chart(alt.InlineData(values=rows)).encode(y=y)
    layers = [base.mark_bar(color="#56b4e9", height={"band": 0.65}).encode(x=x, tooltip=tooltip)]
    if any("low" in row for row in rows):
        spread = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=1.4)
        layers.append(spread.encode(x=alt.X("low:Q", title=COSTS[kind]), x2="high:Q"))
    return styled(alt.layer(*layers).properties(width=WIDTH, height=24 * len(rows)))
