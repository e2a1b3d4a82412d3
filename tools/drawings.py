"""Draws learning curves and heat maps of the papers' experiments from the metrics that are kept of them (see kept.py).

Curves are drawn where a paper draws them: for figures, and for tables of rounds to a target. There is a chart for every
column of the table, as the papers have a panel each for IID and other clients. Figures that vary the population are also
drawn over its EMD, and those that vary two numbers, such as rate and momentum, as heat maps; so is the benchmark's table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.design.metric import COSTS
from fedquilt.experiment.page.curves import KEYS, Line, figure_of_curves, over_of, title_of
from fedquilt.experiment.page.experiment import figure_of_cells_by_skew, name_of
from fedquilt.experiment.page.figure import Figure
from fedquilt.experiment.page.heat_map import Square, heat_map
from fedquilt.experiment.page.hyper_parameters import figure_of_hyper_parameters
from fedquilt.experiment.results.cells import Cell
from fedquilt.experiment.results.outcome import Outcome
from fedquilt.experiment.results.written import unit_of

OWN = "fedquilt's own"
"""The source of the benchmark's experiments, whose table is also a heat map."""

APART = 8
"""How many times longer than the shortest the longest curve is where rounds are drawn on a logarithmic scale."""

FORMAT = "png"
"""A chart for a page has a mark at each of thousands of points, to point at; as SVG it would be megabytes."""


def drawings(
    stem: str, experiment: Experiment, outcomes: Sequence[Outcome], cells: Sequence[Cell], emds: Mapping[str, float]
) -> list[Figure]:
    """Return what is drawn of an experiment, each figure with one chart; `emds` are those of trials' clients."""
    figure = stem.startswith("figure-") and not experiment.figures
    found: list[Figure] = []
    if figure or experiment.metric.name in COSTS:
        found += _curves(experiment, outcomes, cells)
    if len(experiment.rows) == len(experiment.columns) == 1 and experiment.source == OWN:
        found += _table(experiment, cells)
    skew = figure_of_cells_by_skew(experiment, cells, emds) if figure else None
    if skew is not None:
        found.append(replace(skew, name="skew-1"))
    maps = figure_of_hyper_parameters(experiment, outcomes) if figure else None
    if maps is not None:
        found += [
            replace(maps, name=f"map-{number}", title=label, charts={label: chart})
            for number, (label, chart) in enumerate(maps.charts.items(), 1)
        ]
    return found


def _table(experiment: Experiment, cells: Sequence[Cell]) -> Iterator[Figure]:
    """Draw a table as a heat map, the best of each column framed."""
    metric, unit = experiment.metric, unit_of(experiment.metric)
    axes = [axis.name for axis in experiment.blueprint.axes]
    down, across = (axes.index(name) for name in (*experiment.rows, *experiment.columns))
    known = [cell for cell in cells if cell.metric.label == metric.label and cell.value is not None]
    methods, columns = list(experiment.blueprint.axes[down].cases), {cell.key[across] for cell in known}
    known.sort(key=lambda cell: -methods.index(cell.key[down]))  # the first is drawn at the top
    best_of = min if metric.lower_is_better else max
    best = {column: best_of(cell.value for cell in known if cell.key[across] == column) for column in columns}
    squares = [
        Square(cell.key[across], cell.key[down], unit.factor * value, best=value == best[cell.key[across]])
        for cell in known
        if (value := cell.value) is not None
    ]
    if squares:
        chart = heat_map(squares, "", "", f"{metric.label} ({unit.name})", metric.lower_is_better)
        yield Figure("table-1", "The same as a heat map", {experiment.title: chart})


def _curves(experiment: Experiment, outcomes: Sequence[Outcome], cells: Sequence[Cell]) -> Iterator[Figure]:
    metric = experiment.metric
    title = title_of(next((name for name, key in KEYS.items() if key == metric.of), metric.of))
    histories = {outcome.trial.name: outcome.history for outcome in outcomes if outcome.ended}
    down = [axis.name for axis in experiment.blueprint.axes if axis.name not in experiment.columns]
    panels: dict[str, list[Line]] = {}
    for cell in cells:
        repeats = tuple(histories[trial.name] for trial in cell.trials if trial.name in histories)
        if cell.metric.label == metric.label and repeats:
            line = Line(name_of(experiment, cell.key, without=experiment.columns), repeats, experiment.monotonic)
            panels.setdefault(name_of(experiment, cell.key, without=down), []).append(line)
    for number, (label, lines) in enumerate(panels.items(), 1):
        lengths = [max(history.last for history in line.repeats) for line in lines]
        apart = max(lengths) > APART * min(lengths)
        absolute = metric.of == "accuracy" and metric.relative_to is None
        target = metric.target if absolute else None
        charts = figure_of_curves(lines, target, over_of(metric), log_rounds=apart).charts
        if title in charts:
            yield Figure(f"curves-{number}", label, {label: charts[title]})


def paths_of(figures: Sequence[Figure], path: Path) -> list[Path]:
    """Return the files of drawings, beside the metrics that they are made of."""
    return [path.with_name(f"{path.stem}-{figure.name}.{FORMAT}") for figure in figures]


def write(figures: Sequence[Figure], path: Path) -> None:
    """Write drawings beside the metrics that they are made of, in place of those that were there."""
    for kind in ("curves", "table", "skew", "map"):
        for old in path.parent.glob(f"{path.stem}-{kind}-*.{FORMAT}"):
            old.unlink()
    for figure in figures:
        replace(figure, name=f"{path.stem}-{figure.name}").write(path.parent, (FORMAT,))
