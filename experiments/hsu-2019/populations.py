"""Draws the Dirichlet populations of Hsu 2019 and 2020 on CIFAR's labels, and measures how far clients are apart.

    python experiments/hsu-2019/populations.py

prints the table of README.md, and writes `populations.json` and `populations.svg` beside this file. Populations need
labels only, and those of CIFAR are 5,000 examples of each of 10 classes, or 500 of each of 100: no files are read.
"""

from __future__ import annotations

import json
from pathlib import Path

import altair as alt
import numpy as np
from scipy import stats

import fedquilt
from fedquilt.analysis.skew import Skew, skew
from fedquilt.experiment.page.figure import styled, write_spec
from fedquilt.experiment.page.palette import class_colours
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


def bars(held: Partition, title: str, clients: np.ndarray) -> alt.Chart:
    """Draw some clients' classes, as Hsu 2019's Figure 1."""
    counts = held.class_counts(labels_of(10), 10)[clients]
    rows = [
        {"client": place, "class": str(label), "share": 100 * int(count) / int(each.sum())}
        for place, each in enumerate(counts)
        for label, count in enumerate(each)
        if count
    ]
    names = [str(label) for label in range(10)]
    colour = alt.Color("class:N", scale=alt.Scale(domain=names, range=class_colours(10)), sort=None)
    return (
        alt.Chart(alt.InlineData(values=rows), title=title)
        .mark_bar()
        .encode(
            x=alt.X("client:O", title=f"{len(clients)} clients", axis=alt.Axis(labels=False, ticks=False)),
            y=alt.Y("share:Q", title="share of classes (%)", scale=alt.Scale(domain=[0, 100])),
            color=colour.legend(title="class", symbolType="square"),
            order="class:N",
        )
        .properties(width=150, height=170)
    )


def ridges(name: str, classes: int, alphas: tuple[float, ...]) -> alt.LayerChart:
    """Draw histograms of clients' EMDs, one above the other, as Hsu 2020's Figure 4 (top)."""
    rows, means = [], []
    for alpha in alphas:
        found = population(classes, alpha, 0)[1]
        counts, edges = np.histogram(found.emd, bins=np.linspace(0, 2, 81))
        at = zip(edges[:-1], edges[1:], counts / counts.max(), strict=True)
        rows += [{"alpha": f"{alpha:g}", "from": low, "to": high, "share": share} for low, high, share in at if share]
        means.append({"alpha": f"{alpha:g}", "mean": found.mean(found.emd)})
    title = "EMD of a client's classes from all clients'"
    row = alt.Y("alpha:O", title="α", sort=[f"{alpha:g}" for alpha in alphas], scale=alt.Scale(paddingInner=0.15))
    shade = alt.Opacity("share:Q", scale=alt.Scale(domain=[0, 1], range=[0.1, 1]), legend=None)
    histogram = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_bar(color="#0072b2")
        .encode(x=alt.X("from:Q", title=title, scale=alt.Scale(domain=[0, 2])), x2="to:Q", y=row, opacity=shade)
    )
    mean = (
        alt.Chart(alt.InlineData(values=means))
        .mark_tick(color="#d55e00", thickness=2.5, orient="vertical")
        .encode(x=alt.X("mean:Q", title=title), y=row)
    )
    return alt.layer(histogram, mean).properties(width=380, height=230, title=name)


def ranks(name: str, classes: int, alphas: tuple[float, ...]) -> alt.Chart:
    """Draw the classes that clients hold, by rank, as Hsu 2020's Figure 10."""
    rows = []
    for alpha in alphas:
        falling = np.sort(population(classes, alpha, 0)[1].held)[::-1]
        rows += [{"alpha": f"{alpha:g}", "rank": rank, "held": int(held)} for rank, held in enumerate(falling, 1)]
    order = [f"{alpha:g}" for alpha in alphas]
    return (
        alt.Chart(alt.InlineData(values=rows), title=name)
        .mark_line(interpolate="step", strokeWidth=1.8)
        .encode(
            x=alt.X("rank:Q", title="clients, by rank", scale=alt.Scale(domain=[0.5, CLIENTS + 0.5], nice=False)),
            y=alt.Y("held:Q", title="classes of a client"),
            color=alt.Color("alpha:O", title="α", sort=order, scale=alt.Scale(scheme="viridis")),
        )
        .properties(width=330, height=200)
    )


def draw() -> None:
    """Save the figure: Hsu 2019, Figure 1; Hsu 2020, Figure 4 (top) and Figure 10."""
    some = np.random.default_rng(0).permutation(CLIENTS)[:30]
    blocks = bars(fedquilt.class_blocks(labels_of(10), clients=10, classes=2), "2 classes each", np.arange(10))
    shown = [bars(population(10, alpha, 0)[0], f"α = {alpha:g}", some) for alpha in SHOWN]
    middle = [ridges(name, *about) for name, about in SETS.items()]
    bottom = [ranks(name, *about) for name, about in SETS.items()]
    rows = [alt.hconcat(blocks, *shown), alt.hconcat(*middle, spacing=40)]
    rows.append(alt.hconcat(*bottom, spacing=40).resolve_scale(color="independent"))
    chart = alt.vconcat(*rows, spacing=30).resolve_scale(color="independent", opacity="independent")
    write_spec(styled(chart).to_dict(), HERE / "populations.svg")


def main() -> None:
    """Measure and draw."""
    found = measure()
    (HERE / "populations.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(table(found), end="")
    draw()
    print("Wrote populations.json and populations.svg")


if __name__ == "__main__":
    main()
