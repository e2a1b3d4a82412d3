"""Heat maps over two numbers that an experiment varies: tuned keys before the axes of its table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.design.keys import label
from fedquilt.experiment.page.figure import Figure
from fedquilt.experiment.page.heat_map import Square, figure_of_heat_maps, heat_map
from fedquilt.experiment.results.measured import measure
from fedquilt.experiment.results.outcome import Outcome
from fedquilt.experiment.results.written import unit_of

MOMENTA = ("server_momentum", "momentum", "beta")
"""Keys of which 1 less the value is shown: momenta differ in how near they are to 1."""


def figure_of_hyper_parameters(experiment: Experiment, outcomes: Sequence[Outcome]) -> Figure | None:
    """Draw what was reached over two numbers that vary, one chart for each combination of the rest; None without two."""
    pair = _pair(experiment, outcomes)
    if pair is None:
        return None
    down, across = pair
    charts: dict[str, Any] = {}
    rest: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.trial.fold is None:
            rest.setdefault(_others(experiment, outcome, pair), []).append(outcome)
    metric = experiment.metric
    unit = unit_of(metric)
    measured = metric.label if unit.name in metric.label else f"{metric.label} ({unit.name})"
    for name, each in rest.items():
        squares = _squares(experiment, each, across, down)
        if any(square.value is not None for square in squares):
            x, y = (_title(experiment, key) for key in (across, down))
            charts[name or metric.label] = heat_map(squares, x, y, measured, metric.lower_is_better)
    return figure_of_heat_maps(charts) if charts else None


def _numbers(experiment: Experiment, outcome: Outcome) -> dict[str, float]:
    """Return the numbers that a trial has of what varies: tuned keys first, then the cases of axes over one key."""
    found = dict(outcome.trial.tuned)
    for axis, case in zip(experiment.blueprint.axes, outcome.trial.cell, strict=True):
        if not axis.named and len(axis.keys) == 1:
            found[axis.keys[0]] = axis.cases[case].keys[axis.keys[0]]
    return {
        key: float(value)
        for key, value in found.items()
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and not key.endswith("seed")
    }


def _pair(experiment: Experiment, outcomes: Sequence[Outcome]) -> tuple[str, str] | None:
    values: dict[str, set[float]] = {}
    for outcome in outcomes:
        for key, value in _numbers(experiment, outcome).items():
            values.setdefault(key, set()).add(value)
    varied = [key for key, found in values.items() if len(found) > 1]
    if len(varied) < 2:
        return None
    first, second = varied[:2]
    return (first, second) if first.rpartition(".")[2] in MOMENTA else (second, first)


def _others(experiment: Experiment, outcome: Outcome, pair: tuple[str, str]) -> str:
    """Name what a trial has besides the two numbers, its repeat excepted."""
    axes = experiment.blueprint.axes
    pieces = [
        case if axis.named else f"{axis.name} {case}"
        for axis, case in zip(axes, outcome.trial.cell, strict=True)
        if len(axis.cases) > 1 and not set(axis.keys) & set(pair)
    ]
    pieces += [f"{_title(experiment, k)} {label(v)}" for k, v in outcome.trial.tuned.items() if k not in pair]
    return ", ".join(pieces)


def _squares(experiment: Experiment, outcomes: Sequence[Outcome], across: str, down: str) -> list[Square]:
    groups: dict[tuple[float, float], list[Outcome]] = {}
    for outcome in outcomes:
        numbers = _numbers(experiment, outcome)
        if across in numbers and down in numbers:
            groups.setdefault((numbers[across], numbers[down]), []).append(outcome)
    metric, factor = experiment.metric, unit_of(experiment.metric).factor
    found = {}
    for point, each in groups.items():
        done = [measure(metric, outcome.history) for outcome in each if outcome.state == "finished"]
        values = [one.value for one in done if one.value is not None and not one.beyond]
        missing = next((outcome.state for outcome in each if outcome.state != "finished"), "not reached")
        found[point] = (factor * statistics.fmean(values) if values else None, missing)
    known = [value for value, _ in found.values() if value is not None]
    best = (min if metric.lower_is_better else max)(known) if known else None
    order = sorted(found, key=lambda point: (_shown(across, point[0]), _shown(down, point[1])))
    return [
        Square(_words(across, x), _words(down, y), found[x, y][0], found[x, y][1], found[x, y][0] == best is not None)
        for x, y in order
    ]


def _shown(key: str, value: float) -> float:
    return 1 - value if key.rpartition(".")[2] in MOMENTA else value


def _words(key: str, value: float) -> str:
    return f"{_shown(key, value):.4g}"


def _title(experiment: Experiment, key: str) -> str:
    name = experiment.blueprint.shortened.get(key) or key.rpartition(".")[2]
    return f"1 − {name}" if key.rpartition(".")[2] in MOMENTA else name
