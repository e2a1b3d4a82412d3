"""The chart of what was measured: seconds per round, one panel a workload."""

from __future__ import annotations

from pathlib import Path

from findings import DEFAULTS, OURS, PLAIN, Found, measured, seconds
from work import WORKLOADS

COLOURS = {OURS: "#c2410c", DEFAULTS: "#f59e0b", PLAIN: "#0f172a", "peers": "#94a3b8"}


def draw(results: dict[str, Found], path: Path) -> None:
    """Draw what was measured, fastest on top."""
    import altair as alt  # noqa: PLC0415
    import vl_convert  # noqa: PLC0415

    panels = []
    for work, found in results.items():
        rows = [
            {
                "program": row["program"],
                "seconds": seconds(row),
                "words": f"{seconds(row):.3g}",
                "colour": _colour(row["program"]),
            }
            for row in measured(found)
        ]
        if not rows:
            continue
        low, high = min(row["seconds"] for row in rows), max(row["seconds"] for row in rows)
        across = alt.Scale(type="log", domain=[low / 1.5, high * 2], nice=False)
        # Dots, because a bar has no honest beginning on a log scale.
        base = alt.Chart(alt.InlineData(values=rows)).encode(
            x=alt.X("seconds:Q", title="seconds per round (log scale; less is better)", scale=across).axis(
                tickCount=6, format="~g", grid=False
            ),
            y=alt.Y("program:N", title=None, sort=None, axis=alt.Axis(grid=True, labelLimit=220)),
        )
        dots = base.mark_circle(size=70, opacity=1).encode(color=alt.Color("colour:N", scale=None))
        text = base.mark_text(align="left", dx=8, color="#222222").encode(text="words:N")
        title = f"{work.upper()}: {WORKLOADS[work].about}"
        panels.append(alt.layer(dots, text).properties(width=340, height=alt.Step(22), title=title))
    if not panels:
        return
    chart = alt.concat(*panels, columns=2, spacing=30).configure_view(stroke=None)
    chart = chart.configure_title(fontSize=11, fontWeight="normal", anchor="start").configure_axis(
        titleFontWeight="normal"
    )
    path.write_bytes(vl_convert.vegalite_to_png(chart.to_dict(), scale=1.5))


def _colour(program: str) -> str:
    return COLOURS.get(program) or COLOURS["plain" if program.startswith(PLAIN) else "peers"]
