"""Cells of an experiment's table, from its run folders alone: mean ± std over repeats, beside what was published."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedquilt.analysis.significance import compare_to_best
from fedquilt.base.text import counted
from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.design.metric import CellMetric
from fedquilt.experiment.design.published import PublishedValue
from fedquilt.experiment.design.scale import FULL
from fedquilt.experiment.design.trial import Trial
from fedquilt.experiment.results.measured import Measured, measure
from fedquilt.experiment.results.outcome import Outcome, outcome_of
from fedquilt.experiment.results.race import overtaken
from fedquilt.experiment.results.selection import Choice, choose, outcomes_by_cell, trials_of


@dataclass(frozen=True)
class Cell:
    """A cell of an experiment's table.

    - `key`: its case on each of `experiment.key_axes`; `metric`: what it shows.
    - `value`, `std`, `values`: mean, sample standard deviation and values over repeats. `beyond` says that the target was
      not reached in some repeat: `value` is then what was spent without it.
    - `chosen`: the tuned values that it was found with, and `derived` keys; `at_edge`: those of which the best is the
      smallest or largest that was tried.
    - `best`, `marked`: whether it is the best of those it is compared with, and whether it is not significantly worse;
      `p`: of the test against the best.
    - `ratio`: to the metric's baseline cell.
    - `published`, `also_published`: the first published value, and those of other sources; `comparable`: whether ours is
      of the same scale.
    - `trials`: whose runs it shows, one a repeat; `problem`: why there is no value, or not a final one; `run`: whether any
      trial of it has been run.
    """

    key: tuple[str, ...]
    metric: CellMetric
    value: float | None
    std: float | None
    values: tuple[float, ...]
    beyond: bool
    chosen: dict[str, Any]
    derived: dict[str, float]
    at_edge: tuple[str, ...]
    best: bool
    marked: bool
    p: float | None
    ratio: float | None
    published: PublishedValue | None
    also_published: tuple[PublishedValue, ...]
    trials: tuple[Trial, ...]
    problem: str | None
    comparable: bool = True
    run: bool = True

    @property
    def difference(self) -> float | None:
        """Ours less the published value, where both are known, and of the same scale."""
        known = self.comparable and self.published is not None and not self.published.beyond and not self.beyond
        theirs = self.published.value if known and self.published is not None else None
        return None if theirs is None or self.value is None else self.value - theirs


def cells_of(experiment: Experiment, folder: str | Path) -> list[Cell]:
    """Read the runs of an experiment below its folder, and return its cells in the order of the axes.

    >>> import tempfile
    >>> import fedquilt
    >>> from fedquilt.experiment.run import run
    >>> tables = {
    ...     "run": {"rounds": 2},
    ...     "data": {"name": "digits"},
    ...     "partition": {"name": "iid", "clients": 10},
    ...     "model": {"name": "softmax_regression"},
    ...     "method": {"name": "fed_avg"},
    ...     "engine": {"name": "inline"},
    ...     "grid": {"method.lr": [0.01, 0.5]},
    ... }
    >>> experiment = fedquilt.experiment(tables)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = run(experiment.trials[1].spec, out=f"{folder}/{experiment.trials[1].name}")
    ...     slow, fast = cells_of(experiment, folder)
    >>> slow.key, slow.value, slow.problem
    (('0.01',), None, 'has not been run')
    >>> fast.key, 0.5 < fast.value < 1, fast.problem
    (('0.5',), True, None)
    """
    return cells_from(experiment, [outcome_of(trial, Path(folder)) for trial in trials_of(experiment, folder)])


def cells_from(experiment: Experiment, outcomes: Sequence[Outcome]) -> list[Cell]:
    """Return the cells of outcomes that were read before."""
    by_cell = outcomes_by_cell(overtaken(experiment, outcomes))
    several = len(experiment.metrics) > 1
    cells = {}
    for cell in experiment.blueprint.cells():
        for metric in experiment.metrics:
            key = (*cell, metric.label) if several else cell
            cells[key] = _cell(experiment, key, cell, metric, by_cell)
    for key, each in cells.items():
        if each.metric.baseline is not None:
            base = cells.get(_replaced(experiment.key_axes, key, each.metric.baseline))
            cells[key] = replace(each, ratio=_ratio(each, base))
    return _compared(experiment, list(cells.values()))


def _cell(
    experiment: Experiment,
    key: tuple[str, ...],
    cell: tuple[str, ...],
    metric: CellMetric,
    by_cell: Mapping[tuple[str, ...], Sequence[Outcome]],
) -> Cell:
    theirs = tuple(each for each in experiment.published if each.key == key)
    outcomes = by_cell.get(cell, ())
    run = any(outcome.state != "not run" for outcome in outcomes)
    empty = Cell(
        key, metric, None, None, (), False, {}, {}, (), False, False, None, None,
        theirs[0] if theirs else None, theirs[1:], (), "was left out with --only", experiment.scale in (None, FULL), run,
    )  # fmt: skip
    if not outcomes:
        return empty
    reference = None
    if metric.relative_to is not None:
        reference, problem = _reference(experiment, cell, metric, by_cell)
        if problem is not None:
            return replace(empty, problem=problem)
    choice = _choice(experiment, outcomes, metric, reference)
    return _filled(empty, choice, outcomes, metric, reference)


def _choice(experiment: Experiment, outcomes: Sequence[Outcome], metric: CellMetric, reference: float | None) -> Choice:
    """Choose the tuned values of a cell; after cross-validation, show the runs on all training data."""
    folds = [outcome for outcome in outcomes if outcome.trial.fold is not None]
    if not folds:
        return choose(experiment, outcomes, metric, reference)
    chosen = choose(experiment, folds, experiment.metric, None)
    finals = tuple(outcome for outcome in outcomes if outcome.trial.fold is None)
    return replace(chosen, outcomes=finals, complete=chosen.complete and all(each.ended for each in finals))


def _filled(
    empty: Cell, choice: Choice, outcomes: Sequence[Outcome], metric: CellMetric, reference: float | None
) -> Cell:
    done = [outcome for outcome in choice.outcomes if outcome.state == "finished"]
    found = [measure(metric, outcome.history, reference) for outcome in done]
    reached = tuple(each.value for each in found if each.value is not None and not each.beyond)
    beyond = [each.value for each in found if each.beyond and each.value is not None]
    value = max(beyond) if beyond else statistics.fmean(reached) if reached else None
    return replace(
        empty,
        value=value,
        std=statistics.stdev(reached) if len(reached) > 1 and not beyond else None,
        values=reached,
        beyond=bool(beyond),
        chosen=choice.tuned,
        derived=choice.outcomes[0].trial.derived if choice.outcomes else {},
        at_edge=choice.at_edge if choice.complete else (),  # before that, further values may win
        trials=tuple(outcome.trial for outcome in choice.outcomes),
        problem=_problem(choice, outcomes, found),
    )


def _problem(choice: Choice, outcomes: Sequence[Outcome], found: Sequence[Measured]) -> str | None:
    """Say why a cell has no value, or what its value lacks."""
    if all(outcome.state == "not run" for outcome in outcomes):
        return outcomes[0].problem
    bad = [f"{each.trial.name}: {each.problem}" for each in choice.outcomes if each.state != "finished"]
    if not choice.outcomes:
        bad = [f"{each.trial.name}: {each.problem}" for each in outcomes if each.state != "finished"]
    bad += dict.fromkeys(each.problem for each in found if each.problem is not None)
    if bad:
        return "; ".join([*bad[:3], *([f"and {len(bad) - 3} more"] if bad[3:] else [])])
    lacking = [outcome for outcome in outcomes if not outcome.ended]
    if not lacking:
        return None
    broken = [f"; {each.trial.name}: {each.problem}" for each in lacking if each.state in ("failed", "unusable")]
    return f"{len(lacking)} of {counted(len(outcomes), 'trial')} without a result{''.join(broken[:1])}"


def _reference(
    experiment: Experiment,
    cell: tuple[str, ...],
    metric: CellMetric,
    by_cell: Mapping[tuple[str, ...], Sequence[Outcome]],
) -> tuple[float | None, str | None]:
    """Return the best accuracy of the cell that accuracies are relative to, or why it is not known."""
    other = _replaced(tuple(experiment.axes), cell, metric.relative_to or {})
    plain = replace(metric, name="best", target=None, relative_to=None)
    outcomes = by_cell.get(other, ())
    choice = _choice(experiment, outcomes, plain, None) if outcomes else None
    done = [each for each in choice.outcomes if each.state == "finished"] if choice is not None else []
    values = [found.value for each in done if (found := measure(plain, each.history)).value is not None]
    if not values:
        return None, f"is relative to {', '.join(other)}, which has no result"
    return statistics.fmean(values), None


def _replaced(axes: Sequence[str], key: tuple[str, ...], cases: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(cases.get(axis, case) for axis, case in zip(axes, key, strict=True))


def _ratio(cell: Cell, base: Cell | None) -> float | None:
    if base is None or base.beyond or cell.beyond or not cell.value or not base.value:
        return None
    return base.value / cell.value if cell.metric.ratio == "speedup" else cell.value / base.value


def _compared(experiment: Experiment, cells: list[Cell]) -> list[Cell]:
    """Mark the best of the cells that differ on the compared axes only, and those that are not significantly worse."""
    rule = experiment.significance
    if rule is None:
        return cells
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, cell in enumerate(cells):
        apart = (case for axis, case in zip(experiment.key_axes, cell.key, strict=True) if axis not in rule.across)
        groups.setdefault(tuple(apart), []).append(index)
    for indices in groups.values():
        repeats = experiment.blueprint.repeats
        # A repeat that is missing would be paired with another seed's; and a cell that is not complete may be the best.
        known = [index for index in indices if len(cells[index].values) == repeats and not cells[index].beyond]
        begun = any(0 < len(cells[index].values) < repeats for index in indices)
        if len(known) < 2 or repeats < 2 or begun:
            continue
        lower = cells[known[0]].metric.lower_is_better
        samples = [cells[index].values for index in known]
        found = compare_to_best(samples, rule.test, rule.level, rule.sides, lower)
        for number, index in enumerate(known):
            test = found.tests[number]
            cells[index] = replace(
                cells[index],
                best=number == found.best,
                marked=found.not_worse[number],
                p=None if test is None else test.p,
            )
    return cells
