"""Tuned values that cannot be the best any more, and need not be waited for.

Where a cell shows the rounds to a target, and runs stop when they reach it, a combination of tuned values that has taken as
many rounds as another took in all, without having reached it, is overtaken: whatever it does, it is not the best.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from fedquilt.base.text import counted
from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.design.keys import label
from fedquilt.experiment.design.trial import Trial
from fedquilt.experiment.results.measured import measure
from fedquilt.experiment.results.outcome import Outcome


def is_raced(experiment: Experiment, trial: Trial) -> bool:
    """Say whether a trial can be overtaken: it is tuned for the fewest rounds to a target, at which it stops.

    A trial that goes on after the target may be wanted for its curve.
    """
    metric, tuning = experiment.metric, experiment.tuning
    plain = metric.name == "rounds_to" and metric.of == "accuracy" and metric.relative_to is None
    by_test = tuning is not None and tuning.by == "test" and tuning.folds is None
    alone = len(experiment.metrics) == 1 and experiment.blueprint.search is None
    return plain and by_test and alone and bool(trial.tuned) and trial.spec.options.stop_at == metric.target


class Race:
    """How many rounds the trials of a cell have taken so far, and which have reached the target.

    Repeats of a combination count together.
    """

    def __init__(self, trials: Iterable[Trial]) -> None:
        """Begin with nothing taken."""
        self._rounds: dict[str, dict[str, float]] = {}
        self._reached: set[str] = set()
        for trial in trials:
            self._of(trial)[trial.name] = 0

    def advanced(self, trial: Trial, rounds: int) -> None:
        """Note that a trial was evaluated after some rounds, and had not reached the target."""
        self._of(trial)[trial.name] = rounds

    def reached(self, trial: Trial, rounds: float) -> None:
        """Note that a trial has reached the target."""
        self._of(trial)[trial.name] = rounds
        self._reached.add(trial.name)

    @property
    def best(self) -> float:
        """The fewest rounds that a combination took with all its repeats; infinity before there is one."""
        done = (sum(own.values()) for own in self._rounds.values() if own.keys() <= self._reached)
        return min(done, default=math.inf)

    def overtaken(self, trial: Trial) -> bool:
        """Say whether a trial's combination cannot be the best any more."""
        own = self._of(trial)
        return not own.keys() <= self._reached and sum(own.values()) >= self.best

    def _of(self, trial: Trial) -> dict[str, float]:
        return self._rounds.setdefault(label(trial.tuned, exact=True), {})


def overtaken(experiment: Experiment, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return outcomes in which unfinished trials that were overtaken in their cells are said to be."""
    races: dict[tuple[str, ...], Race] = {}
    raced = [outcome for outcome in outcomes if is_raced(experiment, outcome.trial)]
    for outcome in raced:
        trial = outcome.trial
        if trial.cell not in races:
            races[trial.cell] = Race(other.trial for other in raced if other.trial.cell == trial.cell)
        found = measure(experiment.metric, outcome.history)
        if found.value is not None and not found.beyond:
            races[trial.cell].reached(trial, found.value)
        elif rounds := outcome.history.curve("accuracy")[0]:
            races[trial.cell].advanced(trial, rounds[-1])
    return [_marked(outcome, races.get(outcome.trial.cell)) for outcome in outcomes]


def _marked(outcome: Outcome, race: Race | None) -> Outcome:
    waiting = not outcome.ended and outcome.state not in ("failed", "unusable") and len(outcome.history)
    if race is None or not waiting or not race.overtaken(outcome.trial):
        return outcome
    return replace(
        outcome,
        state="overtaken",
        problem=f"given up after {counted(outcome.history.last, 'round')}: others needed fewer",
    )
