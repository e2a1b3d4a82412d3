"""What was reached over two hyper-parameters, such as η_eff and 1 − β (as Hsu 2019's Figures 5 and 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedquilt.experiment.page.figure import Figure, styled

FITS = 8
"""Letters of a label that fit below a square."""


@dataclass(frozen=True)
class Square:
    """The mean over repeats at one pair of values; `value` is None where nothing is known, `note` says why."""

    x: str
    y: str
    value: float | None
    note: str = ""
    best: bool = False


def heat_map(squares: Sequence[Square], x: str, y: str, measured: str, less_is_better: bool = False) -> Any:
    """Draw one square for every pair of values, the better the darker, with its number in it; the best has a frame."""
    import altair as alt

    columns, rows = (list(dict.fromkeys(getattr(square, axis) for square in squares)) for axis in "xy")
    known = [square.value for square in squares if square.value is not None]
    middle = (min(known) + max(known)) / 2 if known else 0.0
    values = [
        {"x": square.x, "y": square.y, "words": square.note if square.value is None else _short(square.value)}
        | ({} if square.value is None else {"value": square.value, "dark": (square.value > middle) != less_is_better})
        | {"best": square.best}
        for square in squares
    ]
    angle = -35 if any(len(each) > FITS for each in columns) else 0
    across = alt.X("x:O", title=x or None, sort=columns, axis=alt.Axis(labelAngle=angle, labelOverlap=False))
    down = alt.Y("y:O", title=y or None, sort=list(reversed(rows)), axis=alt.Axis(labelOverlap=False))
    base = alt.Chart(alt.InlineData(values=values)).encode(x=across, y=down)
    shade = alt.Scale(scheme="viridis", reverse=not less_is_better)
    coloured = base.mark_rect(stroke="white", strokeWidth=1).encode(
        color=alt.Color("value:Q", title=measured, scale=shade, legend=alt.Legend(orient="right", gradientLength=140)),
        tooltip=[alt.Tooltip("x:O", title=x), alt.Tooltip("y:O", title=y), alt.Tooltip("words:N", title=measured)],
    )
    framed = base.transform_filter("datum.best").mark_rect(fill=None, stroke="#d55e00", strokeWidth=2.5)
    text = base.mark_text(fontSize=10).encode(
        text="words:N", color=alt.condition("datum.dark", alt.value("white"), alt.value("#222222"))
    )
    return styled(alt.layer(coloured, framed, text).properties(width=alt.Step(54), height=alt.Step(30)))


def figure_of_heat_maps(charts: dict[str, Any]) -> Figure:
    """Put heat maps of several methods or populations into one figure."""
    caption = "Mean over repeats; the framed square is the best."
    return Figure("hyper-parameters", "Hyper-parameters", charts, caption)


def _short(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"
