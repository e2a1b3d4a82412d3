"""Tuned values that cannot be the best any more, and need not be waited for.

Where a cell shows the rounds to a target, and runs stop when they reach it, a combination of tuned values that has taken as
many rounds as another took in all, without having reached it, is overtaken: whatever it does, it is not the best. So is one
of which a repeat has ended without reaching the target, once another has reached it in all repeats.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from fedquilt.base.text import counted
from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.design.keys import label
from fedquilt.experiment.design.metric import CellMetric
from fedquilt.experiment.design.trial import Trial
from fedquilt.experiment.results.measured import measure
from fedquilt.experiment.results.outcome import GIVEN_UP, Outcome, outcome_of

WHY = "another value reached the target in fewer rounds, all repeats together"
"""Why a trial is given up."""


def is_raced(experiment: Experiment, trial: Trial) -> bool:
    """Say whether a trial can be overtaken: it is tuned for the fewest rounds to a target, at which it stops.

    A trial that goes on after the target may be wanted for its curve.
    """
    metric, tuning = experiment.metric, experiment.tuning
    plain = metric.name == "rounds_to" and metric.of == "accuracy" and metric.relative_to is None
    by_test = tuning is not None and tuning.race and tuning.by == "test" and tuning.folds is None
    alone = len(experiment.metrics) == 1 and experiment.blueprint.search is None
    return plain and by_test and alone and bool(trial.tuned) and trial.spec.options.stop_at == metric.target


class Race:
    """How many rounds the trials of a cell have taken so far, which have reached the target, and which never will.

    Repeats of a combination count together.
    """

    def __init__(self, metric: CellMetric, trials: Iterable[Trial]) -> None:
        """Begin with nothing taken."""
        self._metric = metric
        self._rounds: dict[str, dict[str, float]] = {}
        self._reached: set[str] = set()
        self._out: set[str] = set()
        for trial in trials:
            self._of(trial)[trial.name] = 0

    def advanced(self, trial: Trial, rounds: int) -> None:
        """Note that a trial was evaluated after some rounds, and had not reached the target."""
        self._of(trial)[trial.name] = rounds

    def note(self, outcome: Outcome) -> None:
        """Note how far a trial has come; one that failed will be run again."""
        trial = outcome.trial
        found = measure(self._metric, outcome.history)
        if outcome.state == "finished" and found.value is not None and not found.beyond:
            self._of(trial)[trial.name] = found.value
            self._reached.add(trial.name)
        elif outcome.state in ("finished", "diverged"):
            self._out.add(_combination(trial))
        elif rounds := outcome.history.curve("accuracy")[0]:
            self.advanced(trial, rounds[-1])

    @property
    def best(self) -> float:
        """The fewest rounds that a combination took with all its repeats; infinity before there is one."""
        done = (sum(own.values()) for own in self._rounds.values() if own.keys() <= self._reached)
        return min(done, default=math.inf)

    def overtaken(self, trial: Trial) -> bool:
        """Say whether a trial's combination cannot be the best any more."""
        own, best = self._of(trial), self.best
        if own.keys() <= self._reached or best == math.inf:
            return False
        return sum(own.values()) >= best or _combination(trial) in self._out

    def _of(self, trial: Trial) -> dict[str, float]:
        return self._rounds.setdefault(_combination(trial), {})


def _combination(trial: Trial) -> str:
    return label(trial.tuned, exact=True)


def races_of(experiment: Experiment, outcomes: Iterable[Outcome] = ()) -> dict[tuple[str, ...], Race]:
    """Return the races of an experiment, by cell, as far as they have come with some outcomes."""
    raced: dict[tuple[str, ...], list[Trial]] = {}
    for trial in experiment.trials:
        if is_raced(experiment, trial):
            raced.setdefault(trial.cell, []).append(trial)
    races = {cell: Race(experiment.metric, trials) for cell, trials in raced.items()}
    for outcome in outcomes:
        if outcome.trial.cell in races:
            races[outcome.trial.cell].note(outcome)
    return races


def races_in(experiment: Experiment, folder: Path) -> dict[tuple[str, ...], Race]:
    """Return the races of an experiment as far as they have come in a folder; nothing is read where there are none."""
    if not races_of(experiment):
        return {}
    return races_of(experiment, [outcome_of(trial, folder) for trial in experiment.trials])


def overtaken(experiment: Experiment, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return outcomes in which trials that were overtaken in their cells are said to be, whether they have begun or not."""
    races = races_of(experiment, outcomes)
    return [_marked(outcome, races.get(outcome.trial.cell)) for outcome in outcomes]


def _marked(outcome: Outcome, race: Race | None) -> Outcome:
    open_ = not outcome.ended and outcome.state not in ("failed", "unusable")
    if race is None or not open_ or not race.overtaken(outcome.trial):
        return outcome
    when = f"given up after {counted(outcome.history.last, 'round')}" if len(outcome.history) else "was not run"
    return replace(outcome, state=GIVEN_UP, problem=f"{when}: {WHY}")
