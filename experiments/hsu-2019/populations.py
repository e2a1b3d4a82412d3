"""Draws the Dirichlet populations of Hsu 2019 and 2020 on CIFAR's labels, and measures how far clients are apart.

    python experiments/hsu-2019/populations.py

prints the table of README.md, and writes `populations.json` and `populations.png` beside this file. Populations need
labels only, and those of CIFAR are 5,000 examples of each of 10 classes, or 500 of each of 100: no files are read.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

import fedquilt
from fedquilt.analysis.skew import Skew, skew
from fedquilt.experiment.plots import class_colors, plain, stack_bars
from fedquilt.partition import Partition

HERE = Path(__file__).parent
CLIENTS, EXAMPLES, SEEDS = 100, 500, range(5)
SETS = {
    "CIFAR-10": (10, (100.0, 10.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.0)),
    "CIFAR-100": (100, (1000.0, 100.0, 10.0, 5.0, 2.0, 1.0, 0.5, 0.0)),
}
SHOWN = (100.0, 1.0, 0.1, 0.0)


def labels_of(classes: int) -> np.ndarray:
    """Return the labels of CIFAR with that many classes, sorted."""
    return np.repeat(np.arange(classes), CLIENTS * EXAMPLES // classes)


def population(classes: int, alpha: float, seed: int) -> tuple[Partition, Skew]:
    """Draw and measure 100 clients of 500 examples."""
    labels = labels_of(classes)
    held = fedquilt.dirichlet(labels, clients=CLIENTS, alpha=alpha, seed=seed)
    return held, skew(held, labels)


def expected(classes: int, alpha: float) -> float:
    """Return E‖q_i − p‖₁ of a client of 500 examples whose classes never run out: C·E|X/500 − 1/C|, X beta-binomial."""
    if alpha == 0:
        return 2 * (1 - 1 / classes)
    count = np.arange(EXAMPLES + 1)
    chance = stats.betabinom(EXAMPLES, alpha / classes, alpha - alpha / classes).pmf(count)
    return float(classes * (chance * np.abs(count / EXAMPLES - 1 / classes)).sum())


def measure() -> dict[str, list[dict[str, float]]]:
    """Measure every α on five populations."""
    found: dict[str, list[dict[str, float]]] = {}
    for name, (classes, alphas) in SETS.items():
        found[name] = []
        for alpha in alphas:
            each = [population(classes, alpha, seed)[1] for seed in SEEDS]
            drawn = [one.summary() for one in each]
            emd = [about["emd"] for about in drawn]
            found[name].append(
                {
                    "alpha": alpha,
                    "emd": round(float(np.mean(emd)), 3),
                    "emd_std": round(float(np.std(emd, ddof=1)), 3),
                    "emd_first_half": round(float(np.mean([one.emd[: CLIENTS // 2].mean() for one in each])), 3),
                    "emd_expected": round(expected(classes, alpha), 3),
                    "classes_held": round(float(np.mean([about["classes_held"] for about in drawn])), 1),
                    "effective_classes": round(float(np.mean([about["effective_classes"] for about in drawn])), 2),
                }
            )
    return found


def table(found: dict[str, list[dict[str, float]]]) -> str:
    """Write the measurements as a table."""
    lines = [
        "| data | α | EMD, mean ± std of 5 populations | first 50 clients | expected | classes held | effective classes |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, rows in found.items():
        lines += [
            f"| {name} | {row['alpha']:g} | {row['emd']:.3f} ± {row['emd_std']:.3f} "
            f"| {row['emd_first_half']:.3f} | {row['emd_expected']:.3f} "
            f"| {row['classes_held']:g} | {row['effective_classes']:g} |"
            for row in rows
        ]
    return "\n".join(lines) + "\n"


def bars(axes: object, held: Partition, title: str, clients: np.ndarray) -> None:
    """Draw some clients' classes, as Hsu 2019's Figure 1."""
    counts = held.class_counts(labels_of(10), 10)[clients]
    stack_bars(axes, 100 * counts / counts.sum(axis=1, keepdims=True), class_colors(10))
    axes.set(xlim=(-0.5, len(clients) - 0.5), ylim=(0, 100), xticks=[], xlabel=f"{len(clients)} clients")
    axes.set_title(title, fontsize=9)
    plain(axes, grid=False)


def draw() -> None:
    """Save the figure: Hsu 2019, Figure 1; Hsu 2020, Figure 4 (top) and Figure 10."""
    figure = Figure(figsize=(11, 9.6), layout="constrained")
    top, middle, bottom = figure.subfigures(3, 1, height_ratios=[1, 1.25, 1])
    axes = top.subplots(1, 5, sharey=True)
    bars(axes[0], fedquilt.class_blocks(labels_of(10), clients=10, classes=2), "2 classes each", np.arange(10))
    some = np.random.default_rng(0).permutation(CLIENTS)[:30]
    for place, alpha in zip(axes[1:], SHOWN, strict=True):
        bars(place, population(10, alpha, 0)[0], f"α = {alpha:g}", some)
    axes[0].set_ylabel("share of classes (%)")
    for place, (name, (classes, alphas)) in zip(middle.subplots(1, 2), SETS.items(), strict=True):
        for row, alpha in enumerate(reversed(alphas)):
            found = population(classes, alpha, 0)[1]
            counts, edges = np.histogram(found.emd, bins=np.linspace(0, 2, 81))
            place.stairs(row + 0.8 * counts / counts.max(), edges, baseline=row, fill=True, color="tab:blue", alpha=0.6)
            place.plot([found.mean(found.emd)] * 2, [row, row + 0.85], color="black", linewidth=1.4)
        place.set(xlim=(0, 2), xlabel="EMD of a client's classes from all clients'", ylabel="α", title=name)
        place.set_yticks(np.arange(len(alphas)) + 0.3, [f"{alpha:g}" for alpha in reversed(alphas)])
        place.title.set_fontsize(9)
        plain(place)
    for place, (name, (classes, alphas)) in zip(bottom.subplots(1, 2), SETS.items(), strict=True):
        colors = class_colors(80)[:: 80 // len(alphas)]
        for alpha, color in zip(alphas, colors, strict=False):
            falling = np.sort(population(classes, alpha, 0)[1].held)[::-1]
            place.step(np.arange(1, CLIENTS + 1), falling, where="mid", label=f"{alpha:g}", color=color, linewidth=1.5)
        place.set(xlabel="clients, by rank", ylabel="classes of a client", xlim=(0.5, CLIENTS + 0.5), ylim=(0, None))
        place.set_title(name, fontsize=9)
        place.legend(title="α", frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
        plain(place)
    figure.savefig(HERE / "populations.png", dpi=150)


def main() -> None:
    """Measure and draw."""
    found = measure()
    (HERE / "populations.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(table(found), end="")
    draw()
    print("Wrote populations.json and populations.png")


if __name__ == "__main__":
    main()
