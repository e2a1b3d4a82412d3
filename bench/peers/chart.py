"""The chart of results.json: seconds a round, one panel a workload."""

from __future__ import annotations

from pathlib import Path


def draw(rows: list[dict[str, object]], path: Path) -> None:
    """Draw what was measured, fastest on top."""
    import matplotlib  # noqa: PLC0415

    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    measured = [r for r in rows if "seconds" in r]
    works = sorted({r["workload"] for r in measured})
    if not works:
        return
    figure, panels = pyplot.subplots(1, len(works), figsize=(1 + 5 * len(works), 4.2), squeeze=False)
    for panel, work in zip(panels[0], works, strict=True):
        here = sorted((r for r in measured if r["workload"] == work), key=lambda r: -r["seconds"])
        colours = ["#c2410c" if r["peer"] == "fedquilt" else "#94a3b8" for r in here]
        bars = panel.barh([r["peer"] for r in here], [r["seconds"] for r in here], color=colours)
        panel.bar_label(bars, [f"{r['seconds']:.3g}" for r in here], padding=3, fontsize=9)
        panel.set_xscale("log")
        panel.set_xlim(min(r["seconds"] for r in here) / 2, max(r["seconds"] for r in here) * 3)
        panel.set_title(work.upper())
        panel.set_xlabel("seconds a round (log scale; less is better)")
        panel.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
