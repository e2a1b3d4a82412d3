"""Pictures of a population: who holds which class, how far clients are from the whole, how much they hold, and where.

After Hsu 2019, Figure 1 (stacked classes), and Hsu 2020, Figures 1 (a map of a class), 2, 3 and 10 (counts by rank) and 4
(distances).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedquilt.analysis.skew import Skew
from fedquilt.base.rng import generator
from fedquilt.base.types import Indices
from fedquilt.data.data import Data
from fedquilt.experiment.plots import draw_clients, new_figure, plain, save, whole_ticks
from fedquilt.partition.partition import Partition

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 20_000
"""Examples on a map, at most."""

LEAST = 10
"""Examples of a class that is shown on a map, at least, where there is one with so many."""


def draw_population(folder: Path, data: Data, partition: Partition, skew: Skew) -> list[Path]:
    """Save all pictures that the data allow, and return where they are."""
    files = [folder / "sizes.png"]
    if skew.has_classes:
        files = [folder / "classes.png", folder / "emd.png", folder / "ranks.png"]
        draw_clients(files[0], partition, data.train.y.numpy(), data.classes, data.class_name)
        draw_distances(files[1], skew)
    draw_ranks(files[-1], skew)
    if data.train.coordinates is not None:
        files.append(folder / "map.png")
        draw_map(files[-1], data, partition)
    return files


def draw_distances(path: Path, skew: Skew) -> None:
    """Save the histogram of clients' ‖q_i − p‖₁ with its weighted mean (as Hsu 2020's Figure 4, top)."""
    figure, (axes,) = new_figure(1, (5.2, 3.2))
    held = skew.emd[skew.sizes > 0]
    axes.hist(held, bins=np.linspace(0, 2, 41).tolist(), color="tab:blue", alpha=0.75, edgecolor="white", linewidth=0.4)
    axes.axvline(
        skew.mean(skew.emd), color="black", linewidth=1.4, label=f"mean weighted by examples, {skew.mean(skew.emd):.2f}"
    )
    axes.axvline(
        skew.emd_by_chance,
        color="0.5",
        linewidth=1.2,
        linestyle="--",
        label=f"dealt out at random, {skew.emd_by_chance:.2f}",
    )
    axes.set(xlim=(0, 2), xlabel="EMD of a client's classes from all clients'", ylabel="clients")
    plain(axes)
    whole_ticks(axes.yaxis)
    figure.legend(frameon=False, fontsize=8.5, loc="outside lower center", ncols=2)
    save(figure, path)


def draw_ranks(path: Path, skew: Skew) -> None:
    """Save classes and examples of every client, the largest first (as Hsu 2020's Figures 2b, 2c, 3 and 10)."""
    curves = {"examples per client": skew.sizes}
    if skew.has_classes:
        curves = {"classes per client": skew.held, **curves}
    figure, all_axes = new_figure(len(curves), (4.5 * len(curves), 3.2))
    for axes, (name, counts) in zip(all_axes, curves.items(), strict=True):
        rank_curve(axes, counts)
        axes.set(xlabel="clients, by rank", ylabel=name)
        plain(axes)
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() == "linear":
                whole_ticks(axis)
    save(figure, path)


def rank_curve(axes: Axes, counts: Indices, label: str | None = None) -> None:
    """Draw counts in falling order; the scales are logarithmic where they span much."""
    falling = np.sort(counts)[::-1]
    ranks = np.arange(1, len(falling) + 1)
    if len(falling) > 4000:  # a line needs no more points than a picture has
        kept = np.unique(np.geomspace(1, len(falling), 2000).astype(int)) - 1
        falling, ranks = falling[kept], ranks[kept]
    axes.plot(ranks, falling, linewidth=1.6, label=label, drawstyle="steps-mid" if len(ranks) <= 200 else "default")
    positive = falling[falling > 0]
    if len(positive) and positive[0] > 30 * positive[-1]:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, max(axes.get_ylim()[1], 1.08 * float(falling[0]), 1))
    if len(counts) > 1000:
        axes.set_xscale("log")
    else:
        axes.set_xlim(0.5, len(counts) + 0.5)


def draw_map(path: Path, data: Data, partition: Partition) -> None:
    """Save a map of examples coloured by client, and of two classes whose places differ (as Hsu 2020's Figure 1)."""
    assert data.train.coordinates is not None
    owner = np.repeat(np.arange(len(partition)), partition.sizes)
    known = np.isfinite(data.train.coordinates[partition.indices]).all(axis=1)
    held, owner = partition.indices[known], owner[known]
    if not len(held):  # nobody knows where
        return
    everywhere = data.train.coordinates[held]
    rng = generator(0, "points on a map")
    some = rng.permutation(len(owner))[:POINTS]
    coordinates, owner = everywhere[some], owner[some]
    two = data.train.y.dim() == 1 and data.classes > 0
    tall, wide = np.ptp(everywhere, axis=0) + 4
    figure, axes = new_figure(1 + two, (6.4 * (1 + two), float(np.clip(6.0 * tall / wide, 2.0, 6.0)) + 0.8))
    # Neighbours in number are often neighbours in place: shuffled colours tell them apart.
    color = rng.permutation(len(partition))[owner] % 20
    axes[0].scatter(coordinates[:, 1], coordinates[:, 0], c=color, cmap="tab20", s=5, linewidths=0, alpha=0.8)
    axes[0].set_title(f"{len(partition):,} clients", fontsize=9)
    if two:
        labels = data.train.y.numpy()[held]
        axes[1].scatter(coordinates[:, 1], coordinates[:, 0], color="0.8", s=4, linewidths=0)
        for kind, shade in zip(apart(everywhere, labels), ("tab:green", "tab:red"), strict=False):
            of_class = everywhere[labels == kind]
            called = data.class_name(kind).replace("$", r"\$")  # matplotlib reads formulas between dollar signs
            name = f"class {called}, {len(of_class):,} examples"
            axes[1].scatter(
                of_class[:, 1], of_class[:, 0], color=shade, s=16, edgecolor="white", linewidths=0.3, label=name
            )
        figure.legend(frameon=False, fontsize=8.5, loc="outside lower center", ncols=2)
    for each in axes:
        _graticule(each, everywhere)
    save(figure, path)


def apart(coordinates: npt.NDArray[np.float64], labels: npt.NDArray[np.integer]) -> list[int]:
    """Choose the class with the narrowest range, and the one whose middle is farthest from it.

    >>> coordinates = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 90.0], [0.0, 95.0], [0.0, 10.0], [0.0, 60.0]])
    >>> apart(coordinates, np.array([0, 0, 1, 1, 2, 2]))
    [0, 1]
    """
    latitude, longitude = np.radians(coordinates).T
    points = np.stack(
        [np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)], axis=1
    )
    kinds, kind, counts = np.unique(labels, return_inverse=True, return_counts=True)
    middles = np.stack([np.bincount(kind, weights=points[:, axis]) for axis in range(3)], axis=1) / counts[:, None]
    narrow = np.linalg.norm(middles, axis=1)  # 1 where all of a class is at one place, 0 where it is everywhere
    usable = counts >= min(max(LEAST, int(np.median(counts))), int(counts.max()))
    first = int(np.argmax(np.where(usable, narrow, -1)))
    far = np.linalg.norm(middles - middles[first], axis=1)
    second = int(np.argmax(np.where(usable, far * narrow, -1)))
    return [int(kinds[first])] + ([int(kinds[second])] if second != first else [])


def _graticule(axes: Axes, coordinates: npt.NDArray[np.float64]) -> None:
    """Fit the axes around the places: one degree is as long either way, lines at whole degrees (equirectangular)."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    low, high = coordinates.min(axis=0) - 2, coordinates.max(axis=0) + 2
    axes.set(xlim=(max(low[1], -180), min(high[1], 180)), ylim=(max(low[0], -90), min(high[0], 90)), aspect="equal")
    for axis, (minus, plus) in ((axes.xaxis, ("W", "E")), (axes.yaxis, ("S", "N"))):
        axis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 1.5, 2, 3, 4.5, 6, 9, 10]))
        axis.set_major_formatter(
            FuncFormatter(
                lambda value, _, minus=minus, plus=plus: (
                    f"{abs(value):g}°{minus if value < 0 else plus if value > 0 else ''}"
                )
            )
        )
    axes.tick_params(labelsize=8)
    axes.grid(color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_color("0.7")
