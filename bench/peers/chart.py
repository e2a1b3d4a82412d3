"""The chart of what was measured: seconds per round, one panel a workload."""

from __future__ import annotations

from pathlib import Path

from findings import DEFAULTS, OURS, PLAIN, Found, measured, seconds
from work import WORKLOADS

COLOURS = {OURS: "#c2410c", DEFAULTS: "#f59e0b", PLAIN: "#0f172a", "peers": "#94a3b8"}


def draw(results: dict[str, Found], path: Path) -> None:
    """Draw what was measured, fastest on top."""
    import matplotlib  # noqa: PLC0415

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker  # noqa: PLC0415

    shown = {work: measured(found)[::-1] for work, found in results.items() if measured(found)}
    if not shown:
        return
    across = min(2, len(shown))
    down = -(-len(shown) // across)
    figure, panels = pyplot.subplots(down, across, figsize=(7 * across, 3.4 * down), squeeze=False)
    for panel in panels.flat[len(shown) :]:
        panel.remove()
    for panel, (work, rows) in zip(panels.flat, shown.items(), strict=False):
        names, values = [row["program"] for row in rows], [seconds(row) for row in rows]
        # Dots, because a bar has no honest beginning on a log scale.
        panel.scatter(values, names, color=[_colour(name) for name in names], s=45, zorder=2)
        panel.grid(axis="y", color="#e2e8f0", zorder=0)
        for name, value in zip(names, values, strict=True):
            panel.annotate(f"{value:.3g}", (value, name), (7, 0), textcoords="offset points", va="center", fontsize=9)
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter("")
        panel.set_xlim(min(values) / 1.5, max(values) * 2)
        panel.set_title(f"{work.upper()}: {WORKLOADS[work].about}", fontsize=9, loc="right")
        panel.set_xlabel("seconds per round (log scale; less is better)")
        panel.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def _colour(program: str) -> str:
    return COLOURS.get(program) or COLOURS["plain" if program.startswith(PLAIN) else "peers"]
