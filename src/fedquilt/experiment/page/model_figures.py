"""Figures of trained models that an experiment asks for: between two of them, and what they make of clients' examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedquilt.experiment.contents import Contents
from fedquilt.experiment.page.clients import figure_of_clients
from fedquilt.experiment.page.figure import HEIGHT, WIDTH, Figure, styled
from fedquilt.experiment.page.palette import class_colours
from fedquilt.experiment.results.figures import FigureData

EVERYONE = "all clients together"
PANEL = 220
"""Width and height of a panel."""


def model_figures(found: Sequence[FigureData], runs: Mapping[str, Contents]) -> tuple[list[Figure], list[str]]:
    """Draw the figures whose numbers are there, and say of the others why they are not; `runs` are by folder."""
    figures, problems = [], []
    for number, each in enumerate(found, 1):
        name = f"{number}-{each.request.name}"
        if each.problem is not None:
            problems.append(f"The figure “{each.request.title}” is not there: {each.problem}")
            continue
        try:
            figure = _drawn(name, each, runs)
        except (KeyError, TypeError, ValueError):  # the file that keeps the numbers was changed
            problems.append(
                f"The figure “{each.request.title}” is not there: its file in figures/ is damaged; delete it"
            )
            continue
        if figure is not None:
            figures.append(figure)
    return figures, problems


def _drawn(name: str, each: FigureData, runs: Mapping[str, Contents]) -> Figure | None:
    title, data = each.request.title, each.data
    if each.request.name == "interpolation":
        charts = {"loss": _line(data, "loss")}
        if all(value is not None for value in data["accuracy"]):
            charts["accuracy"] = _line(data, "accuracy")
        caption = "θ·w + (1 − θ)·w′ between two models: w is at θ = 1, w′ at θ = 0; dashed, the better of the two."
        return Figure(name, title, charts, caption)
    if each.request.name == "features":
        caption = (
            "Features of clients' examples, projected to their two principal components. The discrepancy is the mean "
            "distance of the clients' centroids from that of all."
        )
        return Figure(name, title, {"features": _panels(data["panels"])}, caption)
    held = runs[data["run"]].holdings if data["run"] in runs else None
    if held is None:
        return None
    drawn = figure_of_clients({title: held})
    return Figure(name, title, drawn.charts, drawn.caption)


def _line(data: Mapping[str, Any], measure: str) -> Any:
    import altair as alt

    factor = 100.0 if measure == "accuracy" else 1.0
    values = [factor * float(value) for value in data[measure]]
    rows = [{"theta": float(theta), "value": value} for theta, value in zip(data["theta"], values, strict=True)]
    split = "all training examples" if data["split"] == "train" else "the test set"
    title = f"{measure}{' (%)' if factor > 1 else ''} on {split}"
    y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=False))
    x = alt.X(
        "theta:Q", title="θ, the share of the first model", scale=alt.Scale(nice=False), axis=alt.Axis(tickCount=8)
    )
    base = alt.Chart(alt.InlineData(values=rows))
    tooltip = [alt.Tooltip("theta:Q", title="θ", format=".2f"), alt.Tooltip("value:Q", title=measure, format=".4g")]
    layers = [
        base.mark_line(color="#0072b2", strokeWidth=1.8, point=alt.OverlayMarkDef(size=14)).encode(
            x=x, y=y, tooltip=tooltip
        )
    ]
    if measure == "loss":
        parent = alt.Chart(alt.InlineData(values=[{"value": float(data["best_parent"])}]))
        layers.append(parent.mark_rule(color="#d55e00", strokeDash=[5, 3], strokeWidth=1.6).encode(y=y))
    return styled(alt.layer(*layers).properties(width=WIDTH, height=HEIGHT))


def _panels(panels: Sequence[Mapping[str, Any]]) -> Any:
    import altair as alt

    names = list(dict.fromkeys(f"client {client}" for panel in panels for client in panel["clients"]))
    domain = [*names, EVERYONE]
    scale = alt.Scale(domain=domain, range=[*class_colours(len(names)), "#bbbbbb"])
    legend = alt.Legend(title=None, orient="right", columns=-(-len(domain) // 14), symbolType="circle", symbolOpacity=1)
    charts = []
    for panel in panels:
        groups = {EVERYONE: panel["everyone"]} | {f"client {key}": points for key, points in panel["clients"].items()}
        rows = [{"of": name, "x": float(x), "y": float(y)} for name, points in groups.items() for x, y in points]
        # Without a label for every point, of which there are thousands.
        chart = alt.Chart(alt.InlineData(values=rows)).mark_circle(size=16, opacity=0.8, aria=False)
        words = f"discrepancy {float(panel['discrepancy']):.3g}; {100 * float(panel['explained']):.0f}% of the variance"
        plain = alt.Axis(labels=False, ticks=False, grid=False)
        charts.append(
            chart.encode(
                x=alt.X("x:Q", title=words, axis=plain, scale=alt.Scale(zero=False)),
                y=alt.Y("y:Q", title=None, axis=plain, scale=alt.Scale(zero=False)),
                color=alt.Color("of:N", scale=scale, legend=legend, sort=None),
                tooltip=[alt.Tooltip("of:N", title=" ")],
            ).properties(width=PANEL, height=PANEL, title=str(panel["title"]))
        )
    return styled(alt.concat(*charts, columns=4 if len(charts) == 4 else 3, spacing=20))
