"""Which tuned values are the best of a cell: by validation examples or by the test set, as the file says.

All repeats of a combination count together, by their mean: a repeat is never chosen. A combination of which a repeat has
diverged, or failed, is not chosen while there is another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.design.keys import label
from fedquilt.experiment.design.metric import COSTS, CellMetric
from fedquilt.experiment.design.search import Range, Values
from fedquilt.experiment.design.trial import Trial
from fedquilt.experiment.results.measured import measure
from fedquilt.experiment.results.outcome import Outcome, outcome_of
from fedquilt.experiment.results.proposals import proposed_trials


@dataclass(frozen=True)
class Choice:
    """The tuned values chosen in a cell, with the outcomes of their repeats; `complete` once all there are have ended.

    `at_edge` are the tuned keys whose chosen value is the smallest or largest of those tried.
    """

    tuned: dict[str, Any]
    outcomes: tuple[Outcome, ...]
    complete: bool
    at_edge: tuple[str, ...]


def choose(experiment: Experiment, outcomes: Sequence[Outcome], metric: CellMetric, reference: float | None) -> Choice:
    """Choose among the combinations of tuned values of one cell, each with all its repeats, or folds."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(label(outcome.trial.tuned, exact=True), []).append(outcome)
    scored = {key: _score(experiment, group, metric, reference) for key, group in groups.items()}
    best = min(groups, key=lambda key: scored[key])
    complete = all(outcome.ended for outcome in outcomes)
    tuned = groups[best][0].trial.tuned
    tried = [group[0].trial.tuned for group in groups.values()]
    known = math.isfinite(scored[best][-1])
    ranges = experiment.blueprint.tuned(outcomes[0].trial.cell)
    return Choice(tuned, tuple(groups[best]), complete, _at_edge(tuned, tried, ranges) if known else ())


def _score(
    experiment: Experiment, group: Sequence[Outcome], metric: CellMetric, reference: float | None
) -> tuple[float, ...]:
    """Return what the best combination has least of: bad repeats, repeats that are missing or miss the target; its loss."""
    tuning = experiment.tuning
    split = "test" if tuning is None else tuning.by
    if metric.name in ("bytes", "seconds") or (metric.name in COSTS and metric.relative_to and reference is None):
        metric = replace(metric, name="best", target=None)  # the cheapest run is no choice, nor is an unknown target
    sound = [outcome for outcome in group if outcome.state not in ("diverged", "failed", "unusable")]
    found = [measure(metric, outcome.history, reference, split) for outcome in sound if outcome.state == "finished"]
    reached = [each.value for each in found if each.value is not None and not each.beyond]
    missing = len(group) - len(found)
    if metric.name in COSTS and not reached:
        near = _score(experiment, group, replace(metric, name="best", target=None), None)
        return (near[0], missing, len(group), near[-1])
    sign = 1 if metric.lower_is_better else -1
    mean = sign * sum(reached) / len(reached) if reached else math.inf
    return (len(group) - len(sound), missing, len(group) - len(reached), mean)


def _at_edge(
    tuned: Mapping[str, Any], tried: Iterable[Mapping[str, Any]], values: Mapping[str, Values]
) -> tuple[str, ...]:
    edges = []
    for key, value in tuned.items():
        searched = values.get(key)
        if isinstance(searched, Range):
            edges += [key] if searched.at_edge(value) else []
            continue
        numbers = {each[key] for each in tried if key in each and _is_number(each[key])}
        if _is_number(value) and len(numbers) > 1 and value in (min(numbers), max(numbers)):
            edges.append(key)
    return tuple(edges)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def trials_of(experiment: Experiment, folder: str | Path) -> list[Trial]:
    """Return the trials to run so far: those of the experiment and, once a cell's folds have ended, those they choose.

    Of a search, these are the proposals so far that were not given up.

    A sweep runs these, and asks again, until there are no more.
    """
    if experiment.blueprint.search is not None:
        return proposed_trials(experiment, Path(folder))
    trials = list(experiment.trials)
    if experiment.tuning is None or experiment.tuning.folds is None:
        return trials
    by_cell = outcomes_by_cell([outcome_of(trial, Path(folder)) for trial in trials])
    return [*trials, *(trial for cell in by_cell.values() for trial in final_trials(experiment, cell))]


def final_trials(experiment: Experiment, folds: Sequence[Outcome]) -> list[Trial]:
    """Return the trials with the values that a cell's folds choose, on all training data; none before all have ended."""
    if not all(outcome.ended for outcome in folds):
        return []
    choice = choose(experiment, folds, experiment.metric, None)
    cell = folds[0].trial.cell
    return [experiment.trial(cell, choice.tuned, repeat) for repeat in range(experiment.blueprint.repeats)]


def outcomes_by_cell(outcomes: Iterable[Outcome]) -> dict[tuple[str, ...], list[Outcome]]:
    """Sort outcomes by the cells that they belong to."""
    found: dict[tuple[str, ...], list[Outcome]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.trial.cell, []).append(outcome)
    return found
