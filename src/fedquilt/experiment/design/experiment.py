"""An experiment: a table or a figure described in one TOML file.

It has the tables of a spec, which all its runs share, and beside them tables that say what varies:

    [experiment]    title, source, caption; rows and columns: which axes go where
    [case.AXIS.NAME]    a named case: tables of the spec that change together
    [grid]          "table.key" = [values]; each key is an axis, and all combinations are run
    [zip.AXIS]      keys whose values change together
    [[when]]        keys that hold in some cells only, or cells to leave out
    [values]        named numbers;  [derive] "table.key" = "formula" over them and over keys
    [tune]          "table.key" = [values]: the best are taken in every cell, by = "validation" or "test"
    [repeat]        "table.key" = [values]: seeds and populations; mean ± std
    [metric]        what a cell shows;  [significance] which cells are compared
    [[figure]]      figures that are no learning curves: see `figures`
    [[published]]   published values;  [scale.NAME] other sizes of the same experiment
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w

from fedquilt.base.errors import SpecError, nearest
from fedquilt.base.text import short, visible
from fedquilt.experiment.design.axes import Axis, Change, read_axes, require_same_length
from fedquilt.experiment.design.blueprint import MOST_TRIALS, Blueprint
from fedquilt.experiment.design.comparison import Significance, read_significance
from fedquilt.experiment.design.conditions import axis_number, case_of, read_conditions
from fedquilt.experiment.design.figures import FigureRequest, read_figures
from fedquilt.experiment.design.formula import read_formula
from fedquilt.experiment.design.keys import SPEC_TABLES, VALUES, flattened, lists, short_names
from fedquilt.experiment.design.metric import CellMetric, read_metrics
from fedquilt.experiment.design.published import PublishedValue, read_published
from fedquilt.experiment.design.scale import chosen_scale, dotted, kept, scale_keys, scaled
from fedquilt.experiment.design.search import Range, Search, read_search
from fedquilt.experiment.design.trial import Trial
from fedquilt.experiment.design.tuning import Tuning, read_tuning
from fedquilt.experiment.spec import EXPERIMENT_TABLES, assignment, change, read_tables, require_tables
from fedquilt.experiment.toml import Table, require_plain

METRIC_AXIS = "metric"
"""The axis of an experiment with several metrics: its last."""

ORIGIN = "origin"
"""The table of a resolved file: where it comes from, its scale, and what the command line set."""

_VARYING = ("case", "grid", "zip", "tune", "repeat", "search")
_ABOUT = ("title", "source", "caption", "rows", "columns")


@dataclass(frozen=True)
class Experiment:
    """An experiment that was read and checked.

    - `axes`: the cases of each axis; `rows` and `columns`: which axes a table has where. With several metrics, "metric" is
      one of these too, and a cell's key ends with the metric's label.
    - `trials`: all runs. With cross-validation (`tuning.folds`) these are the folds; the runs with the values that they
      choose follow: `fedquilt.experiment.results.selection.trials_of` returns both.
    - `cells`: the cells whose trials are run, which `--only` may make fewer. Those of a search are not known beforehand.
    """

    title: str
    source: str | None
    caption: str | None
    axes: dict[str, tuple[str, ...]]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    trials: tuple[Trial, ...]
    metrics: tuple[CellMetric, ...]
    tuning: Tuning | None
    published: tuple[PublishedValue, ...]
    scale: str | None
    file: Path | None
    significance: Significance | None
    figures: tuple[FigureRequest, ...]
    tables: Table
    blueprint: Blueprint

    @property
    def metric(self) -> CellMetric:
        """What a cell shows; the first, if there are several."""
        return self.metrics[0]

    @property
    def key_axes(self) -> tuple[str, ...]:
        """The axes that a cell's key has its cases on."""
        return (*self.axes, *((METRIC_AXIS,) if len(self.metrics) > 1 else ()))

    def trial(self, cell: Sequence[str], tuned: Mapping[str, Any], repeat: int = 0, fold: int | None = None) -> Trial:
        """Make a trial of a cell with tuned values of any kind, as a search does."""
        return self.blueprint.trial(cell, tuned, repeat, fold)

    def to_toml(self) -> str:
        """Write the resolved file, from which the same experiment can be read again, wherever it lies."""
        return tomli_w.dumps(self.tables)


def load_experiment(
    file: str | Path | Mapping[str, Any],
    sets: Iterable[str] = (),
    unsets: Iterable[str] = (),
    scale: str | None = None,
    only: Iterable[str] = (),
) -> Experiment:
    """Read an experiment from a file, or its tables, and check it.

    `sets` such as "run.rounds=5" hold in every case; "tune.method.lr=[0.1]" changes a table of the experiment. `scale` is
    the name of one of its scales, and `only` leaves the trials of these cases.

    >>> digits = {
    ...     "run": {"rounds": 3},
    ...     "data": {"name": "digits"},
    ...     "partition": {"name": "iid", "clients": 10},
    ...     "model": {"name": "softmax_regression"},
    ...     "method": {"name": "fed_avg"},
    ... }
    >>> experiment = load_experiment(digits | {"grid": {"method.lr": [0.1, 0.5]}, "repeat": {"run.seed": [1, 2]}})
    >>> [trial.name for trial in experiment.trials]
    ['lr=0.1,seed=1', 'lr=0.1,seed=2', 'lr=0.5,seed=1', 'lr=0.5,seed=2']
    >>> experiment.axes, experiment.trials[0].spec.parts["method"].arguments["lr"]
    ({'lr': ('0.1', '0.5')}, 0.1)
    """
    path = Path(file) if isinstance(file, str | Path) else None
    source = str(path) if path is not None else "experiment"
    tables = copy.deepcopy(dict(file)) if isinstance(file, Mapping) else read_tables(Path(file))
    require_plain(tables, source)
    origin = _origin(tables.pop(ORIGIN, {}), source)
    folder = Path(origin["folder"]) if "folder" in origin else path.resolve().parent if path is not None else None
    scale = scale if scale is not None else origin.get("scale")
    sets = list(sets)
    own = [text for text in sets if text.strip().partition(".")[0] in EXPERIMENT_TABLES]
    tables = change(tables, own, unsets)
    _require_experiment(tables, source)
    set_keys = origin.get("sets", {}) | dict(assignment(text) for text in sets if text not in own)
    experiment = _read(tables, source, folder, scale, set_keys)
    about = {"scale": scale, "sets": set_keys or None, "folder": None if folder is None else str(folder)}
    about |= {"file": origin.get("file", None if path is None else str(path.resolve()))}
    resolved = tables | {ORIGIN: {key: value for key, value in about.items() if value is not None}}
    return _finished(experiment, path, resolved, scale, list(only))


def _origin(table: object, source: str) -> Table:
    """Check the table of a resolved file that says where it comes from."""
    known = {"file": str, "folder": str, "scale": str, "sets": dict}
    if isinstance(table, dict) and all(isinstance(value, known.get(key, ())) for key, value in table.items()):
        return table
    raise SpecError(f"{source}: [{ORIGIN}]: is written by `fedquilt sweep`, and is damaged here: take it out")


def _require_experiment(tables: Mapping[str, Any], source: str) -> None:
    require_tables(tables, source, EXPERIMENT_TABLES)
    for name in EXPERIMENT_TABLES:
        if name not in ("when", "published", "figure", "metric") and not isinstance(tables.get(name, {}), dict):
            raise SpecError(f"{source}: {name}: must be a table, [{name}], got {short(tables[name])}")
    for name, value in tables.get(VALUES, {}).items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SpecError(f"{source}: [{VALUES}] {visible(name, 80)}: must be a number, got {short(value)}")
    if not any(name in tables for name in _VARYING):
        raise SpecError(
            f"{source}: describes a single run: use `fedquilt run`, or say what varies, for example in a table "
            '[grid] with "method.lr" = [0.05, 0.1]'
        )


@dataclass(frozen=True)
class _Parts:
    """What was read of a file, before its trials are made."""

    blueprint: Blueprint
    about: Table
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    metrics: tuple[CellMetric, ...]
    published: tuple[PublishedValue, ...]
    significance: Significance | None
    figures: tuple[FigureRequest, ...]


def _read(tables: Table, source: str, folder: Path | None, scale: str | None, sets: Table) -> _Parts:
    where = f"{source}: [scale.{scale}]"
    changes = chosen_scale(tables, scale, source)
    full = _blueprint(tables, source, folder, sets)
    metrics = read_metrics(tables.get("metric"), source)
    published = read_published(tables.get("published", []), *_key_space(full, metrics), source)
    changed = scaled(tables, changes, where)
    blueprint = full if scale is None else _blueprint(changed, source, folder, sets, changes, scale)
    metrics = read_metrics(changed.get("metric"), source)
    axes, keys = _key_space(blueprint, metrics)
    metrics = tuple(_resolved(metric, blueprint, axes, keys) for metric in metrics)
    about = _about(changed.get("experiment", {}), source)
    rows, columns = _layout(about, blueprint.axes, len(metrics) > 1, source)
    compared = read_significance(changed.get("significance"), blueprint.axes, blueprint.repeats, source)
    # What was published is of the full experiment's metric, and nothing to compare another with.
    published = () if "metric" in changes else tuple(each for each in published if each.key in keys)
    figures = read_figures(changed.get("figure", []), blueprint.axes, list(blueprint.cells()), source)
    return _Parts(blueprint, about, rows, columns, metrics, published, compared, figures)


def _resolved(metric: CellMetric, blueprint: Blueprint, axes: Sequence[Axis], keys: set[tuple[str, ...]]) -> CellMetric:
    """Find the cells that a metric is relative to: there is one for each."""
    where = f"{blueprint.source}: [metric]"
    cells, named = set(blueprint.cells()), f" (of {metric.label})" if len(axes) > len(blueprint.axes) else ""
    found: dict[str, dict[str, str]] = {}
    for key, on, there in (("relative_to", blueprint.axes, cells), ("baseline", axes, keys)):
        given: Table | None = getattr(metric, key)
        if given is None:
            continue
        places = {axis_number(on, name, f"{where} {key}"): value for name, value in given.items()}
        cases = {number: case_of(on[number], value, f"{where} {key}{named}") for number, value in places.items()}
        for cell in there:
            other = tuple(cases.get(number, case) for number, case in enumerate(cell))
            if other not in there:
                raise SpecError(f"{where} {key}: there is no cell {', '.join(other)}, for {', '.join(cell)}")
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
        raise SpecError(f"{source}: has {most:,} cells; an experiment has at most {MOST_TRIALS:,} trials")
    conditions = read_conditions(tables.get("when", []), axes, source)
    axes, keys = kept(axes, scale or {}, where), scale_keys(scale or {}, where)
    for key, home in (varied | {key: axis.where for axis in axes if not axis.named for key in axis.keys}).items():
        for given, name in ((keys, where), (sets, "--set")):
            if key in given:
                raise SpecError(f"{name} {key}: it varies, in {home}: change the list there instead")
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
    axis = Axis(METRIC_AXIS, labels, (), True, f"{blueprint.source}: [metric]")
    return (*blueprint.axes, axis), {(*cell, label) for cell in blueprint.cells() for label in labels}


def _about(table: object, source: str) -> Table:
    if not isinstance(table, dict):
        raise SpecError(f"{source}: [experiment]: must be a table, got {short(table)}")
    for key, value in table.items():
        if key not in _ABOUT:
            raise SpecError(f"{source}: [experiment] {visible(key, 80)}: unknown key; {nearest(key, _ABOUT)}")
        if key in ("rows", "columns"):
            if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
                raise SpecError(f"{source}: [experiment] {key}: must be a list of axes, got {short(value)}")
        elif not isinstance(value, str):
            raise SpecError(f"{source}: [experiment] {key}: must be text in quotes, got {short(value)}")
    return table


def _layout(about: Table, axes: Sequence[Axis], several: bool, source: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the axes of rows and of columns: those that the file leaves open go to the rows, the last to the columns."""
    names = [axis.name for axis in axes] + [METRIC_AXIS] * several
    found: dict[str, list[str]] = {}
    for key in ("rows", "columns"):
        if key in about:
            where = f"{source}: [experiment] {key}"
            found[key] = [
                name if several and name == METRIC_AXIS else axes[axis_number(axes, name, where)].name
                for name in about[key]
            ]
    given = [name for each in found.values() for name in each]
    if len(set(given)) < len(given):
        raise SpecError(f"{source}: [experiment]: an axis stands twice in rows and columns: {', '.join(given)}")
    left = [name for name in names if name not in given]
    if "rows" in found and "columns" in found and left:
        raise SpecError(f"{source}: [experiment]: {left[0]} is neither in rows nor in columns")
    if "columns" in found:
        return tuple(found.get("rows", left)), tuple(found["columns"])
    if "rows" in found:
        return tuple(found["rows"]), tuple(left)
    return (tuple(left[:-1]), tuple(left[-1:])) if len(left) > 1 else (tuple(left), ())


def _finished(parts: _Parts, path: Path | None, tables: Table, scale: str | None, only: list[str]) -> Experiment:
    blueprint, about = parts.blueprint, parts.about
    count = blueprint.count()
    if count > MOST_TRIALS:
        raise SpecError(f"{blueprint.source}: has {count:,} trials; an experiment has at most {MOST_TRIALS:,}")
    if not count:
        raise SpecError(f"{blueprint.source}: no trial is left: [[when]] leaves every cell out")
    blueprint.require_taken()
    cells = _cells(blueprint, only)
    return Experiment(
        title=about.get("title") or (path.stem if path is not None else "experiment"),
        source=about.get("source"),
        caption=about.get("caption"),
        axes={axis.name: tuple(axis.cases) for axis in blueprint.axes},
        rows=parts.rows,
        columns=parts.columns,
        cells=cells,
        trials=_trials(blueprint, cells),
        metrics=parts.metrics,
        tuning=blueprint.tuning,
        published=parts.published,
        scale=scale,
        file=path,
        significance=parts.significance,
        figures=parts.figures,
        tables=tables,
        blueprint=blueprint,
    )


def _cells(blueprint: Blueprint, only: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    wanted = [_wanted(blueprint, name) for name in only]
    return tuple(
        cell
        for cell in blueprint.cells()
        if not wanted or any(cell[axis] == case for places in wanted for axis, case in places)
    )


def _trials(blueprint: Blueprint, cells: Sequence[tuple[str, ...]]) -> tuple[Trial, ...]:
    folds = blueprint.tuning.folds if blueprint.tuning is not None else None
    trials: list[Trial] = []
    for cell in cells:
        for tuned in blueprint.combinations(cell):
            if folds is None:
                trials += [blueprint.trial(cell, tuned, repeat) for repeat in range(blueprint.repeats)]
            else:
                trials += [blueprint.trial(cell, tuned, fold=fold) for fold in range(folds)]
    _require_own_folders(trials, blueprint.source)
    return tuple(trials)


def _wanted(blueprint: Blueprint, name: str) -> list[tuple[int, str]]:
    """Find a case that is named alone, or with its axis, as in `batch=10`."""
    places = [
        (number, case)
        for number, axis in enumerate(blueprint.axes)
        for case in axis.cases
        if name in (case, f"{axis.name}={case}")
    ]
    if not places:
        known = [case for axis in blueprint.axes for case in axis.cases]
        raise SpecError(f"--only {visible(name, 80)}: there is no such case; {nearest(name, known)}")
    return places


def _require_own_folders(trials: Sequence[Trial], source: str) -> None:
    """Refuse two trials with one folder; file systems may not tell capital letters apart."""
    seen: dict[str, str] = {}
    for trial in trials:
        other = seen.setdefault(trial.name.casefold(), trial.name)
        if other is not trial.name:
            raise SpecError(
                f"{source}: two trials would have one folder, {visible(other, 80)} and {visible(trial.name, 80)}; "
                "give their cases names that differ by more than capital letters"
            )
