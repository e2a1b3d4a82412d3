"""Learning curves: the mean over repeats and a band of one standard deviation, over rounds or what was spent."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from fedquilt.analysis.curves import History
from fedquilt.analysis.standing import divergence
from fedquilt.base.text import SHARES
from fedquilt.experiment.design.metric import COSTS, CellMetric
from fedquilt.experiment.page.figure import HEIGHT, WIDTH, Figure, line_scales, styled, ticks_to

FEW = 25
"""Points of a curve that are marked one by one; of more, the line says enough."""

MOST = 400
"""Points of a curve that are drawn; of more, as many are taken at even distances."""

LARGEST = 1e100

ALONG = {
    "round": ("round", None, 1.0),
    "batches": ("batches of the largest client", ("batches",), 1.0),
    "gradients": ("gradients of examples, all clients", ("gradients",), 1.0),
    "megabytes": ("MB sent, up and down", ("bytes_up", "bytes_down"), 1e-6),
    "seconds": ("seconds of training", ("seconds",), 1.0),
}
"""What curves can be drawn over: the axis' title, the keys of a record that are added up round by round, the unit."""

OWN = "accuracy on own data"
TRAIN_LOSS = "train loss"
MEASURES = {
    "accuracy": "test accuracy",
    OWN: "accuracy on clients' own data",
    "loss": "test loss",
    TRAIN_LOSS: "training loss",
}
KEYS = {OWN: "per_client_accuracy", TRAIN_LOSS: "train_loss"}
"""Measures that a record has under another name."""


OVER = {"rounds": "round", "bytes": "megabytes"}
"""Counts of a metric that curves are drawn over by another name."""


@dataclass(frozen=True)
class Line:
    """One curve: its name, and the histories of the runs that it is the mean of.

    With `monotonic`, it shows the best accuracy so far, after any round up to that one.
    """

    name: str
    repeats: tuple[History, ...]
    monotonic: bool = False


def measures_of(histories: Sequence[History]) -> list[str]:
    """Return what the runs have measured, in the order in which it is shown."""
    named = dict.fromkeys(name for history in histories for name in history.metrics)
    return [name for name in (*MEASURES, *named) if any(_values(h, name) for h in histories)]


def figure_of_curves(
    lines: Sequence[Line], target: float | None = None, over: str = "round", log_rounds: bool = False
) -> Figure:
    """Draw what the runs have measured, one chart each; `target` is an accuracy that is marked.

    `over` is one of the keys of `ALONG`. With `log_rounds`, rounds are on a logarithmic scale, for runs of very different
    lengths.
    """
    measures = measures_of([history for line in lines for history in line.repeats])
    charts = {title_of(name): _chart(lines, name, target, over, log_rounds) for name in measures}
    caption = "Mean of the repeats that have come to a round; the band is one standard deviation either way."
    repeated = any(len(line.repeats) > 1 for line in lines)
    return Figure("curves", "Learning curves", charts, caption if repeated else "")


def over_of(metric: CellMetric) -> str:
    """Return what curves are drawn over for a metric: what it counts, where it is a place on the curve.

    >>> over_of(CellMetric("gradients 500000", "at", at=500_000, along="gradients")), over_of(CellMetric("best accuracy"))
    ('gradients', 'round')
    """
    placed = metric.name == "at" or metric.name in COSTS
    return OVER.get(metric.along, metric.along) if placed else "round"


def title_of(measure: str) -> str:
    """Return what a measure is called on a page.

    >>> title_of("accuracy"), title_of("perplexity")
    ('test accuracy', 'test perplexity')
    """
    return MEASURES.get(measure, f"test {measure}")


def points(line: Line, measure: str) -> list[dict[str, Any]]:
    """Return the points of a curve: means over repeats, and how far one standard deviation reaches.

    >>> runs = [History([{"round": 1, "accuracy": a, "loss": 1.0, "seconds": 2.0}]) for a in (0.4, 0.6)]
    >>> [found] = points(Line("fed_avg", tuple(runs)), "accuracy")
    >>> found["value"], round(found["high"], 2), found["runs"], found["seconds"]
    (50.0, 64.14, 2, 2.0)

    >>> run = History([{"round": n, "accuracy": a, "seconds": 2.0} for n, a in [(1, 0.5), (2, 0.25), (3, 0.75)]])
    >>> [found["value"] for found in points(Line("fed_avg", (run,), monotonic=True), "accuracy")]
    [50.0, 50.0, 75.0]
    """
    share = measure in (*SHARES, OWN)
    factor = 100.0 if share else 1.0
    by_round: dict[int, list[tuple[float, dict[str, float | None]]]] = {}
    for history in line.repeats:
        along = _along(history)
        pairs = _values(history, measure)
        if line.monotonic and share:
            best = accumulate((value for _, value in pairs), min if measure == "error" else max)
            pairs = [(round_, value) for (round_, _), value in zip(pairs, best, strict=True)]
        for round_, value in pairs:
            by_round.setdefault(round_, []).append((factor * value, along[round_]))
    kept = _spread_out(sorted(by_round))
    found = []
    for round_ in kept:
        values = [value for value, _ in by_round[round_]]
        mean = statistics.fmean(values)
        std = statistics.stdev(values) if len(values) > 1 else 0.0
        point: dict[str, Any] = {"line": line.name, "round": round_, "value": mean, "runs": len(values)}
        point |= {"low": mean - std, "high": mean + std, "spread": std}
        for name in [name for name in ALONG if name != "round"]:
            positions = [position[name] for _, position in by_round[round_]]
            known = [position for position in positions if position is not None and drawable(position)]
            if len(known) == len(positions):
                point[name] = statistics.fmean(known)
        found.append({key: _short(value) for key, value in point.items()})
    return found


def _chart(lines: Sequence[Line], measure: str, target: float | None, over: str, log_rounds: bool) -> Any:
    import altair as alt

    share = measure in (*SHARES, OWN)
    found = {line.name: points(line, measure) for line in lines}
    shown = {name: rows for name, rows in found.items() if rows}
    same = _as_others(shown)
    diverged = {line.name for line in lines if any(_diverged(history) for history in line.repeats)}
    names = {
        name: name + (" (diverged)" if name in diverged else "") + (f" (as {same[name]})" if name in same else "")
        for name in shown
    }
    rows = [row | {"line": names[name]} for name, each in shown.items() for row in each]
    colour, dash, legend = line_scales(list(names.values()), [names[name] for name in same])
    title = title_of(measure) + (" (%)" if share else "")
    if share and any(line.monotonic for line in lines):
        title = f"best {title_of(measure)} so far (%)"
    values = [row["value"] for row in rows]
    wide = not share and min(values, default=1.0) > 0 and max(values, default=1.0) > 30 * min(values, default=1.0)
    scale = alt.Scale(type="log") if wide else alt.Scale(zero=False, nice=True)
    over = over if all(over in row for row in rows) else "round"
    x = _axis(over, max((row["round"] for row in rows), default=1), log_rounds)
    y = alt.Y("value:Q", title=title, scale=scale)
    base = alt.Chart(alt.InlineData(values=rows)).encode(x=x, color=colour)
    hover = alt.selection_point(nearest=True, on="pointerover", fields=["line", "round"], empty=False, name="hover")
    tooltip = [
        alt.Tooltip("line:N", title="run"),
        alt.Tooltip("round:Q", format=","),
        *(
            alt.Tooltip(f"{name}:Q", title=words, format=",.1f")
            for name, (words, _, _) in ALONG.items()
            if name != "round" and any(name in row for row in rows)
        ),
        alt.Tooltip("value:Q", title=title, format=".2f" if share else ".4~g"),
    ]
    if any(row["runs"] > 1 for row in rows):
        tooltip += [
            alt.Tooltip("spread:Q", title="± std", format=".2f" if share else ".3~g"),
            alt.Tooltip("runs:Q", title="repeats"),
        ]
    layers = []
    if any(row["runs"] > 1 for row in rows):
        band = base.mark_area(opacity=0.16).encode(y=alt.Y("low:Q", title=title, scale=scale), y2="high:Q")
        layers.append(band)
    thick = [names[name] for name in set(same.values())]
    if thick:
        under = base.transform_filter(alt.FieldOneOfPredicate(field="line", oneOf=thick))
        layers.append(under.mark_line(strokeWidth=6, opacity=0.4, strokeJoin="round").encode(y=y))
    layers.append(base.mark_line(strokeWidth=1.8, strokeJoin="round").encode(y=y, strokeDash=dash))
    marked = [name for name, each in shown.items() if len(each) <= FEW and name not in same]
    if marked:
        few = base.transform_filter(alt.FieldOneOfPredicate(field="line", oneOf=[names[name] for name in marked]))
        layers.append(few.mark_point(filled=True, size=22, opacity=1).encode(y=y))
    ends = [names[name] for name in shown if name in diverged]
    if ends:
        crosses = [next(row for row in reversed(rows) if row["line"] == name) for name in ends]
        cross = alt.Chart(alt.InlineData(values=crosses)).mark_point(
            shape="M-1,-1L1,1M1,-1L-1,1", size=70, strokeWidth=2.5, opacity=1
        )
        layers.append(cross.encode(x=x, y=y, color=colour))
    if target is not None and measure == "accuracy":
        goal = alt.Chart(alt.InlineData(values=[{"target": 100 * target, "words": f"target {100 * target:.1f}%"}]))
        layers.append(goal.mark_rule(color="#777777", strokeDash=[4, 3]).encode(y=alt.Y("target:Q", title=title)))
        words = goal.mark_text(align="left", baseline="bottom", dx=4, dy=-3, color="#555555", fontSize=11)
        layers.append(words.encode(y=alt.Y("target:Q", title=title), x=alt.value(0), text="words:N"))
    near = base.mark_point(filled=True, size=60).encode(
        y=y, tooltip=tooltip, opacity=alt.condition(hover, alt.value(1), alt.value(0))
    )
    layers.append(near.add_params(hover))
    about = {
        "legend": legend,
        "along": {name: words for name, (words, _, _) in ALONG.items() if any(name in row for row in rows)},
        "over": over,
        "smooth": len(rows) > 2 * len(shown),
        "log": True,
    }
    chart = alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)
    return styled(chart.resolve_scale(strokeDash="shared"), about=about)


def _axis(over: str, last: int, log_rounds: bool) -> Any:
    """Return the axis of rounds, up to the last one, or of what was spent."""
    import altair as alt

    if over != "round":
        scale = alt.Scale(zero=False, nice=False)
        return alt.X(f"{over}:Q", title=ALONG[over][0], axis=alt.Axis(grid=False), scale=scale)
    if log_rounds:
        ticks = [factor * 10**power for power in range(len(str(last))) for factor in (1, 2, 5)]
        scale = alt.Scale(type="log", domain=[1, last], nice=False)
    else:
        ticks, scale = ticks_to(last), alt.Scale(domain=[min(0 if last > 1 else last, last), last], nice=False)
    return alt.X("round:Q", title="round", axis=alt.Axis(values=ticks, format="d", grid=False), scale=scale)


def _values(history: History, measure: str) -> list[tuple[int, float]]:
    """Return the rounds at which something was measured, and the values that can be drawn."""
    if measure in KEYS:
        pairs = [(record["round"], record.get(KEYS[measure])) for record in history]
    else:
        pairs = list(zip(*history.curve(measure), strict=True))
    return [(round_, value) for round_, value in pairs if value is not None and drawable(value)]


def drawable(value: float) -> bool:
    """Say whether a value can be drawn: beyond 1e100, means and spreads would overflow; NaN never can."""
    return abs(value) <= LARGEST


def _along(history: History) -> dict[int, dict[str, float | None]]:
    """Return, for every recorded round, what had been spent up to its end; nothing where records before it are lost."""
    rounds = [record["round"] for record in history]
    totals: dict[str, Mapping[int, float | None]] = {}
    for name, (_, keys, unit) in ALONG.items():
        if keys is None:
            continue
        known = history.whole and all(key in record for record in history for key in keys)
        spent = (unit * sum(record[key] for key in keys) for record in history) if known else ()
        totals[name] = dict(zip(rounds, accumulate(spent), strict=True)) if known else dict.fromkeys(rounds)
    return {round_: {name: total[round_] for name, total in totals.items()} for round_ in rounds}


def _spread_out(rounds: list[int]) -> list[int]:
    if len(rounds) <= MOST:
        return rounds
    step = (len(rounds) - 1) / (MOST - 1)
    return [rounds[round(position * step)] for position in range(MOST)]


def _diverged(history: History) -> bool:
    return divergence(history, history.last) is not None


def _as_others(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, str]:
    """Return the curves that are the same as one before them, with its name."""
    first: dict[tuple[Any, ...], str] = {}
    same = {}
    for name, rows in found.items():
        key = tuple((row["round"], row["value"]) for row in rows)
        if key in first:
            same[name] = first[key]
        else:
            first[key] = name
    return same


def _short(value: Any) -> Any:
    """Keep as many digits as can be seen: a page with many curves stays small."""
    return float(f"{value:.6g}") if isinstance(value, float) else value
