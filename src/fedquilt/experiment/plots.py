"""Pictures of runs: learning curves, and who holds which class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedquilt.analysis.curves import History
from fedquilt.analysis.divergence import divergence
from fedquilt.base.text import SHARES
from fedquilt.experiment.client_fares import read_accuracies
from fedquilt.partition.partition import Partition
from fedquilt.round.federation import Federation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

LISTED, COLUMN, TICKS = 52, 13, 14
"""Classes that a picture lists one by one, how many in a column, and how many of more classes are named on a scale."""

SHOWN = 100
"""Clients shown in the picture of who holds what; of more, as many are taken at even distances."""


FEW = 25
"""Points of a curve that are marked one by one; of more, the line says enough."""

COLOURS = 10
"""Runs that are told apart by their colours; more are by dashes too."""

DASHES = ("-", "--", "-.", ":")


def draw_run(folder: Path, history: History, federation: Federation) -> None:
    """Save a run's learning curve and, where there are any, clients' accuracies and who holds which class."""
    name = folder.resolve().name
    title = f"{name}: {federation.algorithm.name}"
    draw_curves(folder / "curve.png", {name: history}, title=title)
    accuracies = read_accuracies(folder)
    if accuracies:
        draw_fares(folder / "per_client.png", {title: accuracies})
    labels = federation.data.train.y.numpy()
    if labels.ndim == 1 and federation.data.classes and not federation.algorithm.course.pooled:
        data = federation.data
        draw_clients(folder / "clients.png", federation.partition, labels, data.classes, data.class_name, name)


def draw_curves(
    path: Path, histories: Mapping[str, History], target: float | None = None, title: str | None = None
) -> None:
    """Save the test's accuracy, loss and other metrics over rounds: a panel each, one line per run.

    A run that has diverged says so, its last point is a cross, and of several runs with the same curve each can be seen.
    """
    names = ["accuracy"] if target is not None or any(history.accuracy for history in histories.values()) else []
    names += ["loss", *dict.fromkeys(name for history in histories.values() for name in history.metrics)]
    figure, panels = new_figure(len(names), (4.5 * max(len(names), 2), 3.6))
    diverged = {label for label, history in histories.items() if divergence(history, history.last) is not None}
    for axes, name in zip(panels, names, strict=True):
        factor, unit = (100.0, " (%)") if name in SHARES else (1.0, "")
        curves = {label: history.curve(name) for label, history in histories.items()}
        for number, (label, (rounds, values)) in enumerate(curves.items()):
            same = [other for other in curves if rounds and curves[other] == (rounds, values)]
            words = label + (" (diverged)" if label in diverged else "")
            words += f" (as {same[0]})" if same and same[0] != label else ""
            marker = "o" if len(rounds) <= FEW else ""
            style: dict[str, Any] = {
                "linewidth": 1.6,
                "markersize": 3.5,
                "linestyle": DASHES[number // COLOURS % len(DASHES)],
            }
            style |= _among_same(same.index(label), len(same)) if len(same) > 1 else {}
            (line,) = axes.plot(
                rounds,
                [factor * value for value in values],
                label=words,
                marker=marker,
                **style,
            )
            if label in diverged and rounds:
                axes.plot(rounds[-1:], [factor * values[-1]], "x", color=line.get_color(), markersize=9, mew=2)
            if name == "accuracy":
                _per_client_curve(axes, label, histories[label], line, marker)
        axes.set(xlabel="round", ylabel=f"test {name}{unit}")
        plain(axes)
        whole_ticks(axes.xaxis)
        _label_last(axes, max((history.rounds[-1] for history in histories.values() if history.rounds), default=0))
    if target is not None:
        panels[0].axhline(100 * target, color="0.6", linewidth=0.8, linestyle="--", label=f"target {100 * target:.1f}%")
    losses = [value for history in histories.values() for value in history.loss if value > 0 and np.isfinite(value)]
    if losses and max(losses) > 30 * min(losses):
        panels[names.index("loss")].set_yscale("log")
    lines = panels[0].get_legend_handles_labels()
    if len(lines[0]) > 1:
        figure.legend(*lines, frameon=False, fontsize=8.5, loc="outside lower center", ncols=min(len(lines[0]), 3))
    if title is None and len(histories) == 1:
        title = next(iter(histories))
    if title is not None:
        ended = f" (diverged by round {max(history.last for history in histories.values())})" if diverged else ""
        figure.suptitle(f"{title}{ended if len(histories) == 1 else ''}", fontsize=10, parse_math=False)
    save(figure, path)


def _among_same(index: int, count: int) -> dict[str, Any]:
    """Draw one of several runs with the same curve: the first as a broad line, the others as dashes side by side on it."""
    if index == 0:
        return {"linewidth": 5.0, "alpha": 0.45, "markersize": 8}
    dash = 4
    return {"linestyle": (dash * index, (dash, dash * max(count - 2, 1))), "markersize": 0}


def _label_last(axes: Axes, last: int) -> None:
    """Put a tick at the last round, and take away those so near that their numbers would run into its own."""
    if last < 1:
        return
    low, high = axes.get_xlim()
    near = 0.08 * (high - low)
    others = [tick for tick in axes.get_xticks() if max(low, 0) <= tick <= last - near]
    axes.set_xticks([*others, last])
    axes.set_xlim(low, high)


def draw_fares(path: Path, runs: Mapping[str, Sequence[float]]) -> None:
    """Save the histogram of clients' accuracies on their own test examples, one per run, with its mean and worst tenth."""
    figure, all_axes = new_figure(len(runs), (max(4.4 * len(runs), 5.2), 3.2))
    for axes, (name, accuracies) in zip(all_axes, runs.items(), strict=True):
        values = 100 * np.sort(np.asarray(accuracies))
        worst = float(values[: max(len(values) // 10, 1)].mean())
        axes.hist(values, bins=np.linspace(0, 100, 21).tolist(), color="tab:blue", alpha=0.75, edgecolor="white")
        axes.axvline(
            float(values.mean()), color="black", linewidth=1.4, label=f"mean over clients {values.mean():.1f}%"
        )
        axes.axvline(worst, color="tab:red", linewidth=1.4, linestyle="--", label=f"worst tenth {worst:.1f}%")
        axes.set(xlim=(0, 100), xlabel="accuracy in the per-client test (%)", ylabel="clients")
        axes.set_title(name, fontsize=9, parse_math=False)
        axes.legend(frameon=False, fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
        plain(axes)
        whole_ticks(axes.yaxis)
    save(figure, path)


def shown(partition: Partition) -> Partition:
    """Return the clients that are shown in the picture of who holds what."""
    held = np.flatnonzero(partition.sizes)
    if len(held) > SHOWN:
        held = held[np.linspace(0, len(held) - 1, SHOWN).astype(int)]
    return Partition.of([partition.client(int(k)) for k in held])


def _per_client_curve(axes: Axes, name: str, history: History, beside: Line2D, marker: str) -> None:
    points = [
        (record["round"], 100 * record["per_client_accuracy"])
        for record in history
        if record.get("per_client_accuracy")
    ]
    if points:
        label, color = f"{name}, per-client test", beside.get_color()
        rounds, values = zip(*points, strict=True)
        axes.plot(rounds, values, f":{marker}", label=label, linewidth=1.2, color=color, markerfacecolor="white")


def draw_clients(
    path: Path,
    partition: Partition,
    labels: npt.NDArray[np.int64],
    classes: int,
    name_of: Callable[[int], str] = str,
    title: str | None = None,
) -> None:
    """Save one bar per client, coloured by class: its shares of the classes (as Hsu 2019's Figure 1), and its size."""
    counts = shown(partition).class_counts(labels, classes)
    every = f"{len(counts):,} of {len(partition):,} clients" if len(counts) < len(partition) else "clients"
    sizes = counts.sum(axis=1)
    shares = counts / sizes[:, None]
    order = np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))
    listed = [name_of(number) for number in range(classes)] if classes <= LISTED else []
    beyond = sum(
        0.5 + 0.065 * max(map(len, listed[first : first + COLUMN])) for first in range(COLUMN, len(listed), COLUMN)
    )
    figure, (upper, lower) = new_figure(2, (9.0 + beyond, 4.2), rows=True)
    palette = class_colors(classes)
    indices = np.arange(len(counts))
    stack_bars(upper, 100 * shares[order], palette)
    lower.bar(indices, sizes[order], width=1.0, color="0.45", edgecolor="white", linewidth=0.2)
    upper.set(ylabel="share of classes (%)", ylim=(0, 100), xlim=(-0.5, len(counts) - 0.5), xticks=[])
    lower.set(ylabel="examples", xlabel=f"{every}, sorted by largest class", xlim=(-0.5, len(counts) - 0.5), xticks=[])
    if sizes.max() > 30 * sizes.min():
        lower.set_yscale("log")
    if listed:
        _class_legend(upper, palette, listed)
    else:
        _class_scale(figure, [upper, lower], palette, name_of)
    for axes in (upper, lower):
        plain(axes, grid=False)
    if title is not None:
        upper.set_title(f"{title}: who holds which class", fontsize=10, loc="left", parse_math=False)
    save(figure, path)


def class_colors(classes: int) -> npt.NDArray[np.float64]:
    """Return a colour for every class."""
    from matplotlib import colormaps

    if classes <= 10:
        return np.asarray(colormaps["tab10"](np.arange(10)))
    return np.asarray(colormaps["turbo"](np.linspace(0.05, 0.95, classes)))


def stack_bars(axes: Axes, shares: npt.NDArray[np.float64], palette: npt.NDArray[np.float64]) -> None:
    """Draw one bar of stacked classes per row; only what is there is drawn, since classes may be thousands."""
    from matplotlib.collections import PolyCollection

    tops = np.cumsum(shares, axis=1)
    row, label = np.nonzero(shares)
    left, low, high = row - 0.5, tops[row, label] - shares[row, label], tops[row, label]
    corners = np.stack([left, low, left + 1, low, left + 1, high, left, high], axis=1).reshape(-1, 4, 2)
    width = 0.2 if shares.shape[1] <= 10 else 0.0
    axes.add_collection(PolyCollection(list(corners), facecolors=palette[label], edgecolors="white", linewidths=width))


def _class_legend(axes: Axes, palette: npt.NDArray[np.float64], names: Sequence[str]) -> None:
    """List the classes beside the axes, in as many columns as that takes."""
    from matplotlib.patches import Patch

    patches = [Patch(color=color, label=f"class {label}") for label, color in enumerate(palette[: len(names)])]
    legend = axes.legend(
        handles=patches,
        title="class",
        frameon=False,
        fontsize=8,
        bbox_to_anchor=(1.0, 1.02),
        loc="upper left",
        ncols=-(-len(names) // COLUMN),
        columnspacing=1.0,
    )
    # Set afterwards: a legend leaves out names that begin with an underscore, and reads dollar signs as formulas.
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set(text=name, parse_math=False)


def _class_scale(
    figure: Figure, axes: list[Axes], palette: npt.NDArray[np.float64], name_of: Callable[[int], str]
) -> None:
    """Show the colours of many classes as a scale, on which some are named, at even distances."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    scale = ScalarMappable(Normalize(-0.5, len(palette) - 0.5), ListedColormap(palette))
    ticks = np.linspace(0, len(palette) - 1, TICKS).round().astype(int).tolist()
    bar = figure.colorbar(scale, ax=axes, ticks=ticks, fraction=0.03, pad=0.02)
    bar.ax.set_title("class", fontsize=8)
    bar.ax.set_yticklabels([name_of(number) for number in ticks], fontsize=8, parse_math=False)


def new_figure(count: int, size: tuple[float, float], rows: bool = False) -> tuple[Figure, list[Axes]]:
    """Return a figure with some axes beside each other, or two above each other."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.12))
    FigureCanvasAgg(figure)
    if rows:
        return figure, list(figure.subplots(count, 1, height_ratios=[3, 1]))
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def whole_ticks(axis: Axis) -> None:
    """Put ticks at whole numbers only, be it a single one."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def plain(axes: Axes, grid: bool = True) -> None:
    """Take away what does not carry data."""
    axes.spines[["top", "right"]].set_visible(False)
    if grid:
        axes.grid(color="0.92", linewidth=0.8)
        axes.set_axisbelow(True)


def save(figure: Figure, path: Path) -> None:
    """Write a figure to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
