"""Reads the tables of an experiment file, at one of its scales."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedquilt.base.errors import SpecError
from fedquilt.experiment.design.axes import Axis, Change, read_axes, require_same_length
from fedquilt.experiment.design.blueprint import MOST_TRIALS, Blueprint
from fedquilt.experiment.design.comparison import Significance, read_significance
from fedquilt.experiment.design.conditions import axis_number, case_of, read_conditions
from fedquilt.experiment.design.figures import FigureRequest, read_figures
from fedquilt.experiment.design.formula import read_formula
from fedquilt.experiment.design.keys import SPEC_TABLES, VALUES, flattened, lists, short_names
from fedquilt.experiment.design.layout import read_about, read_layout
from fedquilt.experiment.design.metric import METRIC_AXIS, CellMetric, read_metrics
from fedquilt.experiment.design.published import PublishedValue, read_published
from fedquilt.experiment.design.scale import chosen_scale, dotted, kept, scale_keys, scaled
from fedquilt.experiment.design.search import Range, Search, read_search
from fedquilt.experiment.design.tuning import Tuning, read_tuning
from fedquilt.experiment.toml import Table


@dataclass(frozen=True)
class Parts:
    """What was read of a file, before its trials are made."""

    blueprint: Blueprint
    about: Table
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    metrics: tuple[CellMetric, ...]
    published: tuple[PublishedValue, ...]
    significance: Significance | None
    figures: tuple[FigureRequest, ...]


def read_parts(tables: Table, source: str, folder: Path | None, scale: str | None, sets: Table) -> Parts:
    """Read everything but the trials; what was published is checked against the full experiment, whatever the scale."""
    where = f"{source}: [scale.{scale}]"
    changes = chosen_scale(tables, scale, source)
    full = _blueprint(tables, source, folder, sets)
    metrics = read_metrics(tables.get("metric"), source)
    published = read_published(tables.get("published", []), *_key_space(full, metrics), source)
    changed = scaled(tables, changes, where)
    blueprint = full if scale is None else _blueprint(changed, source, folder, sets, changes, scale)
    metrics = read_metrics(changed.get("metric"), where if "metric" in changes else source)
    axes, keys = _key_space(blueprint, metrics)
    metrics = tuple(_resolved(metric, blueprint, axes, keys) for metric in metrics)
    about = read_about(changed.get("experiment", {}), source)
    rows, columns = read_layout(about, blueprint.axes, len(metrics) > 1, source)
    compared = read_significance(tables.get("significance"), full.axes, full.repeats, source)
    if scale is not None:  # which may leave a single repeat, and nothing to compare
        compared = read_significance(changed.get("significance"), blueprint.axes, max(blueprint.repeats, 2), source)
        compared = compared if blueprint.repeats > 1 else None
    # What was published is of the full experiment's metric, and nothing to compare another with.
    published = () if "metric" in changes else tuple(each for each in published if each.key in keys)
    cells = list(blueprint.cells())
    figures = read_figures(tables.get("figure", []), full.axes, list(full.cells()), source)
    figures = tuple(each for each in figures if all(model.cell in cells for model in each.models))
    return Parts(blueprint, about, rows, columns, metrics, published, compared, figures)


def _resolved(metric: CellMetric, blueprint: Blueprint, axes: Sequence[Axis], keys: set[tuple[str, ...]]) -> CellMetric:
    """Find the cells that a metric is relative to: there is one for each."""
    where = f"{blueprint.source}: [metric]"
    cells, named = set(blueprint.cells()), f" (of {metric.label})" if len(axes) > len(blueprint.axes) else ""
    found: dict[str, dict[str, str]] = {}
    for key, on, there in (("relative_to", blueprint.axes, cells), ("baseline", axes, keys)):
        given: Table | None = getattr(metric, key)
        if given is None:
            continue
        numbered = {axis_number(on, name, f"{where} {key}"): value for name, value in given.items()}
        cases = {number: case_of(on[number], value, f"{where} {key}{named}") for number, value in numbered.items()}
        for cell in there:
            other = tuple(cases.get(number, case) for number, case in enumerate(cell))
            if other not in there:
                raise SpecError(
                    f"{where} {key}: for {', '.join(cell)} it would be {', '.join(other)}, and there is no such cell: "
                    "name its case on other axes, too"
                )
        found[key] = {on[number].name: case for number, case in cases.items()}
    return replace(metric, relative_to=found.get("relative_to"), baseline=found.get("baseline"))


def _blueprint(
    tables: Table,
    source: str,
    folder: Path | None,
    sets: Table,
    scale: Table | None = None,
    scale_name: str | None = None,
) -> Blueprint:
    where = f"{source}: [scale.{scale_name}]"
    tuning = read_tuning(tables.get("tune"), source)
    repeat = lists(tables.get("repeat", {}), f"{source}: [repeat]")
    require_same_length(repeat, f"{source}: [repeat]")
    varied = dict.fromkeys(tuning.keys if tuning is not None else (), "[tune]") | dict.fromkeys(repeat, "[repeat]")
    axes = read_axes(tables, source, varied)
    most = math.prod(len(axis.cases) for axis in axes)
    if most > MOST_TRIALS:
        raise SpecError(
            f"{source}: has {most:,} cells; an experiment has at most {MOST_TRIALS:,} trials: take values out of the lists"
        )
    conditions = read_conditions(tables.get("when", []), axes, source)
    axes, keys = kept(axes, scale or {}, where), scale_keys(scale or {}, where)
    listed = varied | {
        key: axis.where.removeprefix(f"{source}: ") for axis in axes if axis.kind != "case" for key in axis.keys
    }
    _require_not_listed(listed, {where: keys, "--set": sets})
    _require_not_listed(
        {key: home for key, home in listed.items() if home != "[tune]"},
        {f"{source}: [[when]] {number}": each.change.keys for number, each in enumerate(conditions, 1)},
    )
    changes = [each for axis in axes for each in axis.cases.values()] + [each.change for each in conditions]
    own = [key for each in changes for key in each.tune]
    if own and tuning is None:
        raise SpecError(f'{source}: [tune] by: a case tunes {own[0]}: say how, with [tune] by = "validation" or "test"')
    search = read_search(tables.get("search"), source)
    _require_searched(tuning, search, changes, source)
    formulas = flattened(tables.get("derive", {}), f"{source}: [derive]")
    base = {name: tables[name] for name in (*SPEC_TABLES, VALUES) if name in tables}
    return Blueprint(
        source=source,
        folder=folder,
        base=base,
        axes=axes,
        conditions=conditions,
        tuning=tuning,
        repeat=repeat,
        derive={key: read_formula(text, f'{source}: [derive] "{key}"') for key, text in formulas.items()},
        scale=keys,
        scale_name=scale_name,
        scale_tunes=frozenset(dotted((scale or {}).get("tune", {}))),
        sets=sets,
        shortened=short_names(
            [*(key for axis in axes if not axis.named for key in axis.keys), *varied, *own],
            taken=[axis.name for axis in axes if axis.named],
        ),
        search=search,
    )


def _require_not_listed(listed: Mapping[str, str], given: Mapping[str, Iterable[str]]) -> None:
    """Refuse one value for a key that has a list of them: its cells would say what is not so."""
    for where, keys in given.items():
        for key in keys:
            if key in listed:
                raise SpecError(f"{where} {key}: it varies, in {listed[key]}: change the list there instead")


def _require_searched(tuning: Tuning | None, search: Search | None, changes: Sequence[Change], source: str) -> None:
    """Refuse ranges that nothing searches, and a search of nothing."""
    tuned: Table = {} if tuning is None else dict(tuning.keys)
    for each in changes:
        tuned |= each.tune
    ranges = [key for key, values in tuned.items() if isinstance(values, Range)]
    if search is None and ranges:
        raise SpecError(
            f'{source}: [tune] "{ranges[0]}": a range is searched: add [search] with trials = 30, for example'
        )
    if search is not None and not tuned:
        raise SpecError(
            f'{source}: [search]: there is nothing to search: write [tune] with by and, for example, "method.lr" = '
            "{ low = 0.001, high = 1.0, log = true }"
        )
    if search is not None and tuning is not None and tuning.folds is not None:
        raise SpecError(f"{source}: [search]: does not go with [tune] folds; hold out [run] validation = 0.1 instead")


def _key_space(blueprint: Blueprint, metrics: Sequence[CellMetric]) -> tuple[tuple[Axis, ...], set[tuple[str, ...]]]:
    """Return the axes of cells' keys, the metrics included if there are several, and the keys there are."""
    if len(metrics) == 1:
        return blueprint.axes, set(blueprint.cells())
    labels = {metric.label: Change({}) for metric in metrics}
    axis = Axis(METRIC_AXIS, labels, (), "metric", f"{blueprint.source}: [metric]")
    return (*blueprint.axes, axis), {(*cell, label) for cell in blueprint.cells() for label in labels}
