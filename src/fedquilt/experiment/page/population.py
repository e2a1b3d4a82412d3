"""Figures of a population: who holds which class, how far clients are from the whole, how much they hold, and where.

After Hsu 2019, Figure 1 (stacked classes), and Hsu 2020, Figures 1 (a map of a class), 2, 3 and 10 (counts by rank) and 4
(distances).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedquilt.analysis.skew import Skew
from fedquilt.base.rng import generator
from fedquilt.base.types import Indices
from fedquilt.data.data import Data
from fedquilt.experiment.holdings import holdings_of
from fedquilt.experiment.page.clients import clients_chart
from fedquilt.experiment.page.figure import WIDTH, Figure, styled
from fedquilt.experiment.page.palette import class_colours
from fedquilt.partition.partition import Partition

POINTS = 20_000
"""Examples on a map, at most."""

LEAST = 10
"""Examples of a class that is shown on a map, at least, where there is one with so many."""

RANKS = 2000
"""Points of a curve by rank, at most: it needs no more than a picture has."""


def population_figures(data: Data, partition: Partition, skew: Skew) -> list[Figure]:
    """Draw all that the data allow."""
    figures = []
    if skew.has_classes:
        figures = [
            Figure("classes", "Who holds which class", {"classes": clients_chart(holdings_of(data, partition))}),
            Figure("emd", "How far clients' classes are from all clients'", {"emd": distances_chart(skew)}),
            Figure("ranks", "Classes and examples of clients", {"ranks": ranks_chart(skew)}),
        ]
    else:
        figures = [Figure("sizes", "Examples of clients", {"sizes": ranks_chart(skew)})]
    drawn = map_chart(data, partition) if data.train.coordinates is not None else None
    return figures if drawn is None else [*figures, Figure("map", "Where examples are from", {"map": drawn})]


def distances_chart(skew: Skew) -> Any:
    """Draw the histogram of clients' ‖q_i − p‖₁ with its weighted mean (as Hsu 2020's Figure 4, top)."""
    import altair as alt

    counts, edges = np.histogram(skew.emd[skew.sizes > 0], bins=np.linspace(0, 2, 41))
    bars = [
        {"from": float(low), "to": float(high), "clients": int(count)}
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
    ]
    mean, chance = skew.mean(skew.emd), skew.emd_by_chance
    names = [f"mean by examples, {mean:.2f}", f"dealt out at random, {chance:.2f}"]
    marks = [{"at": value, "mark": name} for value, name in zip((mean, chance), names, strict=True)]
    title = "EMD of a client's classes from all clients'"
    x = alt.X("from:Q", title=title, scale=alt.Scale(domain=[0, 2]))
    histogram = (
        alt.Chart(alt.InlineData(values=bars))
        .mark_bar(color="#0072b2", opacity=0.75, stroke="white", strokeWidth=0.5)
        .encode(x=x, x2="to:Q", y=alt.Y("clients:Q", axis=alt.Axis(tickMinStep=1, format="~s")), y2=alt.datum(0))
    )
    legend = alt.Legend(orient="bottom", title=None, symbolType="stroke", symbolSize=300)
    rules = (
        alt.Chart(alt.InlineData(values=marks))
        .mark_rule(strokeWidth=1.8)
        .encode(
            x=alt.X("at:Q", title=title),
            color=alt.Color("mark:N", scale=alt.Scale(domain=names, range=["#000000", "#d55e00"]), legend=legend),
            strokeDash=alt.StrokeDash("mark:N", scale=alt.Scale(domain=names, range=[[1, 0], [5, 3]]), legend=legend),
        )
    )
    return styled(alt.layer(histogram, rules).properties(width=420, height=220))


def ranks_chart(skew: Skew) -> Any:
    """Draw classes and examples of every client, the largest first (as Hsu 2020's Figures 2b, 2c, 3 and 10)."""
    import altair as alt

    curves = {"examples of a client": skew.sizes}
    if skew.has_classes:
        curves = {"classes of a client": skew.held, **curves}
    panels = [rank_curve(counts, name).properties(width=320, height=220) for name, counts in curves.items()]
    return styled(alt.hconcat(*panels, spacing=30))


def rank_curve(counts: Indices, name: str) -> Any:
    """Draw counts in falling order; the scales are logarithmic where they span much."""
    import altair as alt

    falling = np.sort(counts)[::-1]
    ranks = np.arange(1, len(falling) + 1)
    if len(falling) > 2 * RANKS:
        kept = np.unique(np.geomspace(1, len(falling), RANKS).astype(int)) - 1
        falling, ranks = falling[kept], ranks[kept]
    rows = [{"rank": int(rank), "count": int(count)} for rank, count in zip(ranks, falling, strict=True)]
    positive = falling[falling > 0]
    wide = len(positive) and positive[0] > 30 * positive[-1]
    many = len(counts) > 1000
    across = alt.Scale(type="log", nice=False) if many else alt.Scale(domain=[0.5, len(counts) + 0.5], nice=False)
    x = alt.X("rank:Q", title="clients, by rank", scale=across, axis=alt.Axis(tickMinStep=1, format="~s", grid=False))
    tall = alt.Scale(type="log") if wide else alt.Scale(domainMin=0)
    y = alt.Y("count:Q", title=name, scale=tall, axis=alt.Axis(tickMinStep=1, format="~s", tickCount=6))
    line = alt.Chart(alt.InlineData(values=[row for row in rows if row["count"] or not wide]))
    step: Any = "step" if len(rows) <= 200 else "linear"
    return line.mark_line(color="#0072b2", strokeWidth=1.8, interpolate=step).encode(x=x, y=y)


def map_chart(data: Data, partition: Partition) -> Any:
    """Draw a map of examples coloured by client, and of two classes whose places differ (as Hsu 2020's Figure 1)."""
    import altair as alt

    assert data.train.coordinates is not None
    owner = np.repeat(np.arange(len(partition)), partition.sizes)
    known = np.isfinite(data.train.coordinates[partition.indices]).all(axis=1)
    held, owner = partition.indices[known], owner[known]
    if not len(held):  # nobody knows where
        return None
    everywhere = data.train.coordinates[held]
    rng = generator(0, "points on a map")
    some = rng.permutation(len(owner))[:POINTS]
    colours = class_colours(20)
    # Neighbours in number are often neighbours in place: shuffled colours tell them apart.
    shade = rng.permutation(len(partition))[owner[some]] % len(colours)
    points = [
        {"north": float(place[0]), "east": float(place[1]), "colour": colours[int(number)]}
        for place, number in zip(everywhere[some].round(4), shade, strict=True)
    ]
    x, y, size = _degrees(everywhere)
    base = alt.Chart(alt.InlineData(values=points)).encode(x=x, y=y)
    coloured = base.mark_circle(size=9, opacity=0.8).encode(color=alt.Color("colour:N", scale=None))
    panels = [coloured.properties(title=f"{len(partition):,} clients", **size)]
    if data.train.y.dim() == 1 and data.classes > 0:
        labels = data.train.y.numpy()[held]
        kinds = apart(everywhere, labels)
        names = [f"class {data.class_name(kind)}, {int((labels == kind).sum()):,} examples" for kind in kinds]
        own = [
            {"north": float(north), "east": float(east), "kind": name}
            for kind, name in zip(kinds, names, strict=True)
            for north, east in everywhere[labels == kind][:POINTS].round(4)
        ]
        legend = alt.Legend(orient="bottom", title=None, columns=1)
        scale = alt.Scale(domain=names, range=["#009e73", "#d55e00"][: len(names)])
        marks = alt.Chart(alt.InlineData(values=own)).mark_circle(size=26, opacity=1, stroke="white", strokeWidth=0.4)
        marked = marks.encode(x=x, y=y, color=alt.Color("kind:N", scale=scale, legend=legend, sort=None))
        title = "the class with the narrowest range, and one far from it"
        panels.append(alt.layer(base.mark_circle(size=7, color="#cccccc"), marked).properties(title=title, **size))
    return styled(alt.hconcat(*panels, spacing=30).resolve_scale(color="independent"))


def apart(places: npt.NDArray[np.float64], labels: npt.NDArray[np.integer]) -> list[int]:
    """Choose the class with the narrowest range, and the one whose middle is farthest from it.

    >>> places = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 90.0], [0.0, 95.0], [0.0, 10.0], [0.0, 60.0]])
    >>> apart(places, np.array([0, 0, 1, 1, 2, 2]))
    [0, 1]
    """
    latitude, longitude = np.radians(places).T
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


def _degrees(places: npt.NDArray[np.float64]) -> tuple[Any, Any, dict[str, int]]:
    """Return axes around the places, with lines at whole degrees, and a size at which one is as long either way."""
    import altair as alt

    (south, west), (north, east) = places.min(axis=0) - 2, places.max(axis=0) + 2
    span = [max(west, -180.0), min(east, 180.0)], [max(south, -90.0), min(north, 90.0)]
    width = int(0.75 * WIDTH)
    height = int(np.clip(width * (span[1][1] - span[1][0]) / (span[0][1] - span[0][0]), 100, 400))
    side = "datum.value < 0 ? '{}' : datum.value > 0 ? '{}' : ''"
    across, up = (
        alt.Axis(labelExpr=f"format(abs(datum.value), '~g') + '°' + ({side.format(*names)})", tickCount=7)
        for names in ("WE", "SN")
    )
    x = alt.X("east:Q", title=None, scale=alt.Scale(domain=[float(each) for each in span[0]], nice=False), axis=across)
    y = alt.Y("north:Q", title=None, scale=alt.Scale(domain=[float(each) for each in span[1]], nice=False), axis=up)
    return x, y, {"width": width, "height": height}
