"""An experiment: a table or a figure described in one TOML file.

It has the tables of a spec, which all its runs share, and beside them tables that say what varies:

    [experiment]    title, source, caption; rows and columns: which axes go where; monotonic: curves of the best so far
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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from fedquilt.base.errors import SpecError
from fedquilt.base.text import html_table, short, visible
from fedquilt.experiment.changes import assignment, change
from fedquilt.experiment.design.blueprint import MOST_TRIALS, Blueprint
from fedquilt.experiment.design.comparison import Significance
from fedquilt.experiment.design.figures import FigureRequest
from fedquilt.experiment.design.keys import VALUES
from fedquilt.experiment.design.listing import list_trials, wanted_cells
from fedquilt.experiment.design.metric import METRIC_AXIS, CellMetric
from fedquilt.experiment.design.published import PublishedValue
from fedquilt.experiment.design.reading import Parts, read_parts
from fedquilt.experiment.design.trial import Trial
from fedquilt.experiment.design.tuning import Tuning
from fedquilt.experiment.design.unused_keys import refuse_unused_keys
from fedquilt.experiment.spec import read_tables, require_tables
from fedquilt.experiment.tables import EXPERIMENT_TABLES
from fedquilt.experiment.toml import Table, require_plain

ORIGIN = "origin"
"""The table of a resolved file: where it comes from, its scale, and what the command line set."""

_START = "writes a spec, to which a table of what varies is added, such as [grid]"
_VARYING = ("case", "grid", "zip", "tune", "repeat", "search")


@dataclass(frozen=True, repr=False)
class Experiment:
    """An experiment that was read and checked.

    - `axes`: the cases of each axis; `rows` and `columns`: which axes a table has where. With several metrics, "metric" is
      one of these too, and a cell's key ends with the metric's label.
    - `monotonic`: learning curves show the best accuracy so far.
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
    monotonic: bool
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

    def __repr__(self) -> str:
        """Say what it is of, not all that is in it."""
        return f"Experiment({self.title!r}, {'; '.join(f'{name}: {text}' for name, text in self._about().items())})"

    def _repr_html_(self) -> str:
        """Show what it is of, in a notebook."""
        return html_table([], list({"experiment": self.title, **self._about()}.items()))

    def _about(self) -> dict[str, str]:
        """Say what varies, and how much is to be run."""
        tuned, repeated = self.blueprint.tuned_keys(), list(self.blueprint.repeat)
        about = {axis: ", ".join(cases) for axis, cases in self.axes.items()}
        about |= {"tuned": ", ".join(tuned)} if tuned else {}
        about |= {"repeated": ", ".join(repeated)} if repeated else {}
        return about | {"trials": f"{self.blueprint.count():,}"}

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


def experiment(
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
    >>> rates = experiment(digits | {"grid": {"method.lr": [0.1, 0.5]}, "repeat": {"run.seed": [1, 2]}})
    >>> [trial.name for trial in rates.trials]
    ['lr=0.1,seed=1', 'lr=0.1,seed=2', 'lr=0.5,seed=1', 'lr=0.5,seed=2']
    >>> rates.axes, rates.trials[0].spec.parts["method"].arguments["lr"]
    ({'lr': ('0.1', '0.5')}, 0.1)
    """
    path = Path(file) if isinstance(file, str | Path) else None
    source = str(path) if path is not None else "experiment"
    tables = copy.deepcopy(dict(file)) if isinstance(file, Mapping) else read_tables(Path(file), _START)
    require_plain(tables, source)
    origin = _origin(tables.pop(ORIGIN, {}), source)
    folder = Path(origin["folder"]) if "folder" in origin else path.resolve().parent if path is not None else None
    scale = scale if scale is not None else origin.get("scale")
    sets = list(sets)
    own = [text for text in sets if text.strip().partition(".")[0] in EXPERIMENT_TABLES]
    tables = change(tables, own, unsets)
    _require_experiment(tables, source)
    set_keys = origin.get("sets", {}) | dict(assignment(text) for text in sets if text not in own)
    parts = read_parts(tables, source, folder, scale, set_keys)
    for other in tables.get("scale", {}):  # a mistake in one is found before it is asked for
        if other != scale:
            refuse_unused_keys(read_parts(tables, source, folder, other, set_keys).blueprint)
    about = {"scale": scale, "sets": set_keys or None, "folder": None if folder is None else str(folder)}
    about |= {"file": origin.get("file", None if path is None else str(path.resolve()))}
    resolved = tables | {ORIGIN: {key: value for key, value in about.items() if value is not None}}
    return _finished(parts, path, resolved, scale, list(only))


def _origin(table: object, source: str) -> Table:
    """Check the table of a resolved file that says where it comes from."""
    known = {"file": str, "folder": str, "scale": str, "sets": dict}
    if isinstance(table, dict) and all(isinstance(value, known.get(key, ())) for key, value in table.items()):
        return table
    raise SpecError(f"{source}: [{ORIGIN}]: is written by `fedquilt sweep`, and is damaged here: remove it")


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


def _finished(parts: Parts, path: Path | None, tables: Table, scale: str | None, only: list[str]) -> Experiment:
    blueprint, about = parts.blueprint, parts.about
    count = blueprint.count()
    if count > MOST_TRIALS:
        raise SpecError(f"{blueprint.source}: has {count:,} trials; an experiment has at most {MOST_TRIALS:,}")
    if not count:
        raise SpecError(f"{blueprint.source}: no trial is left: [[when]] leaves every cell out")
    refuse_unused_keys(blueprint)
    cells = wanted_cells(blueprint, only)
    return Experiment(
        title=about.get("title") or Path(tables[ORIGIN].get("file", "experiment")).stem,
        source=about.get("source"),
        caption=about.get("caption"),
        axes={axis.name: tuple(axis.cases) for axis in blueprint.axes},
        rows=parts.rows,
        columns=parts.columns,
        monotonic=about.get("monotonic", False),
        cells=cells,
        trials=list_trials(blueprint, cells),
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
