"""Pictures of runs: learning curves, and who holds which class."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedquilt.core.federation import Federation
from fedquilt.metrics.curves import History
from fedquilt.progress import SHARES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

SHOWN = 100
"""Clients shown in the picture of who holds what; of more, as many are taken at even distances."""


def draw_run(folder: Path, history: History, federation: Federation) -> None:
    """Save a run's learning curve and, where it has classes, the picture of who holds which."""
    draw_curves(folder / "curve.png", {federation.algorithm.name: history})
    labels = federation.data.train.y.numpy()
    if labels.ndim == 1 and federation.data.classes and not federation.algorithm.pooled:
        draw_clients(folder / "clients.png", federation.partition.class_counts(labels, federation.data.classes))


def draw_curves(path: Path, histories: Mapping[str, History], target: float | None = None) -> None:
    """Save the test's accuracy, loss and other metrics over rounds: a panel each, one line a run."""
    names = ["accuracy"] if target is not None or any(history.accuracy for history in histories.values()) else []
    names += ["loss", *dict.fromkeys(name for history in histories.values() for name in history.metrics)]
    figure, panels = _figure(len(names), (4.5 * max(len(names), 2), 3.6))
    for axes, name in zip(panels, names, strict=True):
        factor, unit = (100.0, " (%)") if name in SHARES else (1.0, "")
        for label, history in histories.items():
            rounds, values = history.curve(name)
            marker = "o" if len(rounds) == 1 else ""
            (line,) = axes.plot(rounds, [factor * v for v in values], label=label, linewidth=1.6, marker=marker)
            if name == "accuracy":
                _own_curve(axes, label, history, line, marker)
        axes.set(xlabel="round", ylabel=f"test {name}{unit}")
        _plain(axes)
        _whole_ticks(axes)
    if target is not None:
        panels[0].axhline(100 * target, color="0.6", linewidth=0.8, linestyle="--", label=f"target {100 * target:.1f}%")
    losses = [value for history in histories.values() for value in history.loss if value > 0 and np.isfinite(value)]
    if losses and max(losses) > 30 * min(losses):
        panels[names.index("loss")].set_yscale("log")
    lines = panels[0].get_legend_handles_labels()
    if len(lines[0]) > 1:
        figure.legend(*lines, frameon=False, fontsize=8.5, loc="outside lower center", ncols=min(len(lines[0]), 3))
    _save(figure, path)


def _own_curve(axes: Axes, name: str, history: History, beside: Line2D, marker: str) -> None:
    own = [(record["round"], 100 * record["own_accuracy"]) for record in history if record.get("own_accuracy")]
    if own:
        label, color = f"{name}, on clients' own data", beside.get_color()
        axes.plot(*zip(*own, strict=True), label=label, linewidth=1.2, linestyle=":", color=color, marker=marker)


def draw_clients(path: Path, counts: npt.NDArray[np.int64]) -> None:
    """Save one bar a client, coloured by class: its shares of the classes (as Hsu 2019's Figure 1), and its size."""
    counts = counts[counts.sum(axis=1) > 0]
    if len(counts) > SHOWN:
        counts = counts[np.linspace(0, len(counts) - 1, SHOWN).astype(int)]
    sizes = counts.sum(axis=1)
    shares = counts / sizes[:, None]
    order = np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))
    figure, (upper, lower) = _figure(2, (9.0, 4.2), rows=True)
    from matplotlib import colormaps

    classes = counts.shape[1]
    palette = (
        colormaps["tab10"](np.arange(10)) if classes <= 10 else colormaps["turbo"](np.linspace(0.05, 0.95, classes))
    )
    places, below = np.arange(len(counts)), np.zeros(len(counts))
    for label in range(classes):
        share = 100 * shares[order, label]
        upper.bar(
            places,
            share,
            bottom=below,
            width=1.0,
            color=palette[label],
            label=str(label),
            edgecolor="white",
            linewidth=0.2,
        )
        below += share
    lower.bar(places, sizes[order], width=1.0, color="0.45", edgecolor="white", linewidth=0.2)
    upper.set(ylabel="share of classes (%)", ylim=(0, 100), xlim=(-0.5, len(counts) - 0.5), xticks=[])
    lower.set(
        ylabel="examples", xlabel="clients, sorted by their largest class", xlim=(-0.5, len(counts) - 0.5), xticks=[]
    )
    if classes <= 10:
        upper.legend(title="class", frameon=False, fontsize=8, bbox_to_anchor=(1.0, 1.02), loc="upper left")
    for axes in (upper, lower):
        _plain(axes, grid=False)
    _save(figure, path)


def _figure(count: int, size: tuple[float, float], rows: bool = False) -> tuple[Figure, list[Axes]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.12))
    FigureCanvasAgg(figure)
    if rows:
        return figure, list(figure.subplots(count, 1, height_ratios=[3, 1]))
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def _whole_ticks(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _plain(axes: Axes, grid: bool = True) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    if grid:
        axes.grid(color="0.92", linewidth=0.8)
        axes.set_axisbelow(True)


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
