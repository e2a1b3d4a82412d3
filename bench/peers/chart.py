"""The chart of results.json: seconds a round, one panel a workload."""

from __future__ import annotations

from pathlib import Path


def draw(results: dict[str, dict], path: Path) -> None:
    """Draw what was measured, fastest on top."""
    import matplotlib  # noqa: PLC0415

    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    measured = {work: [r for r in results[work]["rows"] if "seconds" in r] for work in sorted(results)}
    measured = {work: rows for work, rows in measured.items() if rows}
    if not measured:
        return
    across = min(2, len(measured))
    down = -(-len(measured) // across)
    figure, panels = pyplot.subplots(down, across, figsize=(6.5 * across, 3.6 * down), squeeze=False)
    for panel in panels.flat[len(measured) :]:
        panel.remove()
    for panel, (work, rows) in zip(panels.flat, measured.items(), strict=False):
        here = sorted(rows, key=lambda r: -r["seconds"])
        colours = ["#c2410c" if r["program"] == "fedquilt" else "#94a3b8" for r in here]
        bars = panel.barh([r["program"] for r in here], [r["seconds"] for r in here], color=colours)
        panel.bar_label(bars, [f"{r['seconds']:.3g}" for r in here], padding=3, fontsize=9)
        panel.set_xscale("log")
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter("")
        panel.set_xlim(min(r["seconds"] for r in here) / 2, max(r["seconds"] for r in here) * 3)
        panel.set_title(work.upper())
        panel.set_xlabel("seconds a round (log scale; less is better)")
        panel.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
