"""The table of an experiment in the paper's own shape: which cell stands where, and what is said below it."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedquilt.base.errors import MissingExtraError, listed
from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.design.keys import label
from fedquilt.experiment.design.metric import METRIC_AXIS
from fedquilt.experiment.design.scale import FULL
from fedquilt.experiment.design.tuning import Tuning
from fedquilt.experiment.results.cells import Cell
from fedquilt.experiment.results.csv_table import records_of, to_csv
from fedquilt.experiment.results.written import published, unit_of

AT_EDGE = "The best value is at the edge of those tried"


@dataclass(frozen=True)
class ResultTable:
    """Cells in rows and columns.

    `rows` and `columns` are the cases of the axes `row_axes` and `column_axes`; `cells` has None where the experiment
    leaves a cell out. `compares` says of each column whether something was published in it, and `comparable` whether ours
    is of the same scale, so that differences mean something.
    """

    title: str
    caption: str | None
    axes: tuple[str, ...]
    row_axes: tuple[str, ...]
    column_axes: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    columns: tuple[tuple[str, ...], ...]
    cells: tuple[tuple[Cell | None, ...], ...]
    compares: tuple[bool, ...]
    comparable: bool
    notes: tuple[str, ...]

    @property
    def column_names(self) -> list[str]:
        """What the columns are headed with: their cases, or "ours" where there is one column alone."""
        cases = (
            [heading(axis, case) for axis, case in zip(self.column_axes, each, strict=True)] for each in self.columns
        )
        return [", ".join(each) or "ours" for each in cases]

    @property
    def compared_with(self) -> list[str]:
        """The columns that stand beside ours where something was published."""
        return ["published", "difference"] if self.comparable else ["published"]

    def to_pandas(self) -> Any:
        """Return the cells as a pandas DataFrame, a row a cell: its case on every axis, our value, the published one."""
        try:
            import pandas
        except ImportError:
            raise MissingExtraError("to_pandas()", "pandas") from None
        return pandas.DataFrame(records_of(self.axes, self._known()))

    def to_csv(self) -> str:
        """Write the cells as CSV, a line a cell, with all digits."""
        return to_csv(self.axes, self._known())

    def to_markdown(self) -> str:
        """Write the table as Markdown, in its rows and columns."""
        from fedquilt.experiment.results.markdown import to_markdown

        return to_markdown(self)

    def to_latex(self, label: str = "tab:results") -> str:
        """Write the table as LaTeX, for `booktabs`, in its rows and columns; `label` is for references to it."""
        from fedquilt.experiment.results.latex import to_latex

        return to_latex(self, label)

    def _repr_html_(self) -> str:
        """Show the table in a notebook."""
        from fedquilt.experiment.results.shaped import shaped_html

        notes = "".join(f"<br>{html.escape(note)}" for note in self.notes)
        return f"<b>{html.escape(self.title)}</b>{shaped_html(self)}<small>{notes.removeprefix('<br>')}</small>"

    def _known(self) -> list[Cell]:
        return [cell for line in self.cells for cell in line if cell is not None]


def heading(axis: str, case: str) -> str:
    """Write a case as the heading of a column: a number needs the name of its axis, to be understood.

    >>> heading("batch", "10"), heading("batch", "∞"), heading("method", "FedAvg")
    ('batch = 10', 'batch = ∞', 'FedAvg')
    """
    return f"{axis} = {case}" if is_number(case) else case


def is_number(case: str) -> bool:
    """Say whether a case is a number, which says nothing without the name of its axis.

    >>> is_number("0.1"), is_number("∞"), is_number("5%")
    (True, True, False)
    """
    try:
        float(case.replace("∞", "inf"))
    except ValueError:
        return False
    return True


def table_of(experiment: Experiment, cells: Sequence[Cell]) -> ResultTable:
    """Put an experiment's cells into its rows and columns.

    >>> import fedquilt
    >>> from fedquilt.experiment.results.cells import cells_from
    >>> digits = {
    ...     "run": {"rounds": 3},
    ...     "data": {"name": "digits"},
    ...     "partition": {"name": "iid", "clients": 10},
    ...     "model": {"name": "softmax_regression"},
    ...     "method": {"name": "fed_avg"},
    ... }
    >>> experiment = fedquilt.experiment(digits | {"grid": {"method.lr": [0.1, 0.5], "method.epochs": [1, 5, 10]}})
    >>> table = table_of(experiment, cells_from(experiment, []))
    >>> table.row_axes, table.rows, table.column_axes, table.columns
    (('lr',), (('0.1',), ('0.5',)), ('epochs',), (('1',), ('5',), ('10',)))
    """
    axes = experiment.key_axes
    by_key = {cell.key: cell for cell in cells}
    rows = _heads(experiment, cells, experiment.rows)
    columns = _heads(experiment, cells, experiment.columns)
    grid = []
    for row in rows:
        line = []
        for column in columns:
            cases = dict(zip((*experiment.rows, *experiment.columns), (*row, *column), strict=True))
            line.append(by_key.get(tuple(cases[axis] for axis in axes)))
        grid.append(tuple(line))
    compares = tuple(
        any(cell is not None and cell.published is not None for cell in column) for column in zip(*grid, strict=True)
    )
    return ResultTable(
        title=experiment.title,
        caption=experiment.caption,
        axes=axes,
        row_axes=experiment.rows,
        column_axes=experiment.columns,
        rows=tuple(rows),
        columns=tuple(columns),
        cells=tuple(grid),
        compares=compares,
        comparable=all(cell.comparable for cell in cells),
        notes=tuple(_notes(experiment, cells)),
    )


def _heads(experiment: Experiment, cells: Sequence[Cell], axes: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the headings of rows or columns, in the order of the axes' cases, without those that have no cell."""
    indices = [experiment.key_axes.index(axis) for axis in axes]
    labels = [metric.label for metric in experiment.metrics]
    order = [list(experiment.axes.get(axis, labels)) for axis in axes]
    found = {tuple(cell.key[index] for index in indices) for cell in cells}
    return sorted(found, key=lambda head: [cases.index(case) for cases, case in zip(order, head, strict=True)])


def _notes(experiment: Experiment, cells: Sequence[Cell]) -> list[str]:
    """Say what a reader of the table must know."""
    notes = []
    if METRIC_AXIS in experiment.key_axes:
        units = dict.fromkeys(unit_of(metric).name for metric in experiment.metrics)
        notes.append(f"In {', '.join(units)}.")
    else:
        metric, unit = experiment.metric, unit_of(experiment.metric).name
        chosen = metric.name == "best" and metric.of != "train_loss"
        best = ", that of the round which is the best on the test set" if chosen else ""
        notes.append(f"Each cell: {metric.label}{'' if unit in metric.label else f', in {unit}'}{best}.")
    repeats = experiment.blueprint.repeats
    if repeats > 1:
        keys = " and ".join(experiment.blueprint.repeat)
        notes.append(f"Mean ± sample standard deviation over {repeats} repeats ({keys}).")
    if experiment.source is not None:
        sources = list(dict.fromkeys(cell.published.source for cell in cells if cell.published is not None))
        same = sources and all(source in experiment.source for source in sources)
        notes.append(f"{'Published' if same else 'After'}: {experiment.source}.")
        if sources and not same:
            notes.append(f"Published: {'; '.join(sources)}.")
    further = [
        f"{', '.join(cell.key)}: {published(each, cell.metric)} in {each.source}"
        for cell in cells
        for each in cell.also_published
    ]
    if further:
        notes.append(f"Also published: {'; '.join(further)}.")
    if experiment.scale not in (None, FULL):
        apart = any(cell.published is not None for cell in cells)
        theirs = "; published values are of the full scale, and no difference is shown" if apart else ""
        notes.append(f"Ours at the scale {experiment.scale}{theirs}.")
    if experiment.tuning is not None and (names := experiment.blueprint.tuned_keys()):
        notes.append(f"{_tuned(experiment.tuning)}: {', '.join(names)}.")
    if any(cell.marked for cell in cells) and experiment.significance is not None:
        rule = experiment.significance
        test = "paired t-test" if rule.test == "paired" else "Welch's t-test"
        sided = "" if rule.sides == 2 else "one-sided "
        notes.append(
            f"Bold: the best across {' and '.join(rule.across)}; underlined: not significantly worse than it "
            f"({sided}{test}, {100 * rule.level:g}%)."
        )
    if any(cell.ratio is not None for cell in cells):
        notes.append(_ratio_note(experiment))
    edges = [
        f"{', '.join(cell.key)} ({found})" if cell.key else found
        for cell in cells
        if cell.at_edge
        for found in [label({key: cell.chosen[key] for key in cell.at_edge})]
    ]
    if edges:
        notes.append(f"{AT_EDGE}: {listed(edges, 5)}. Try values beyond it.")
    problems = _problems(cells, METRIC_AXIS in experiment.key_axes)
    if problems:
        notes.append(
            f"Not complete: {'; '.join(problems[:5])}{f'; and {len(problems) - 5} more' if problems[5:] else ''}."
        )
    return notes


def _problems(cells: Sequence[Cell], several: bool) -> list[str]:
    """Name the cells that are not complete, and why; with several metrics once for all, if they have the same problem."""
    why = {cell.key: cell.problem for cell in cells if cell.problem is not None}
    found: dict[str, None] = {}
    for key, problem in why.items():
        beside = [cell.key for cell in cells if cell.key[:-1] == key[:-1]]
        same = several and all(why.get(each) == problem for each in beside)
        named = ", ".join(key[:-1] if same else key)
        found[f"{named}: {problem}" if named else problem] = None
    return list(found)


def _tuned(tuning: Tuning) -> str:
    if tuning.folds is not None:
        return f"Tuned by {tuning.folds}-fold cross-validation over clients' training data"
    if tuning.by == "test":
        return "Tuned on the test set"
    return "Tuned on validation examples held out from clients' training data"


def _ratio_note(experiment: Experiment) -> str:
    """Say what the ratios are, and of which metrics where they are not all the same."""
    found: dict[str, list[str]] = {}
    for metric in experiment.metrics:
        if metric.baseline:
            cases = metric.baseline.items()
            cell = ", ".join(case if axis == METRIC_AXIS else f"{axis} = {case}" for axis, case in cases)
            words = "how many times fewer than" if metric.ratio == "speedup" else "how many times as many as"
            found.setdefault(f"{words} for {cell}", []).append(metric.label)
    ratios = [what if len(found) == 1 else f"{what} ({', '.join(labels)})" for what, labels in found.items()]
    return f"In parentheses: {'; '.join(ratios)}."
