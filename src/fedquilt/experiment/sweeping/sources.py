"""Which trials a sweep runs: those that an experiment lists, or those that a search proposes as others end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.design.trial import Trial
from fedquilt.experiment.results.outcome import outcome_of
from fedquilt.experiment.results.race import WHY, races_in
from fedquilt.experiment.results.selection import trials_of
from fedquilt.experiment.sweeping.board import TrialProgress
from fedquilt.experiment.sweeping.executors import Advanced


class Source(Protocol):
    """Where the trials of a sweep come from; `why_given_up` is said of those that it gives up."""

    why_given_up: str

    def more(self) -> Sequence[Trial]:
        """Return trials to run that were not returned before, for as far as they can be known now."""

    def advanced(self, row: TrialProgress, event: Advanced) -> bool:
        """A trial has ended a round; say whether it is to be given up."""

    def needed(self, trial: Trial) -> bool:
        """Say whether a trial still has to be run, or run to its end."""

    def ended(self, row: TrialProgress) -> None:
        """A trial has ended, or was found finished."""


class ListedTrials:
    """The trials that an experiment lists and, after cross-validation, those with the values that the folds choose.

    Of tuned values that race to a target (`race`), those that are overtaken are given up.
    """

    why_given_up = WHY

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        """Begin with what the experiment lists."""
        self._experiment, self._folder = experiment, folder
        self._returned: set[str] = set()
        self._folds = Counter(trial.cell for trial in experiment.trials if trial.fold is not None)
        self._due = True
        self._races = races_in(experiment, folder)

    def more(self) -> Sequence[Trial]:
        """Return all of them, once; then what follows from the folds of a cell, when the last of them has ended."""
        if not self._due:
            return []
        self._due = False
        new = [trial for trial in trials_of(self._experiment, self._folder) if trial.name not in self._returned]
        self._returned |= {trial.name for trial in new}
        return new

    def advanced(self, row: TrialProgress, event: Advanced) -> bool:
        """Say whether another has reached the target in fewer rounds."""
        race, target = self._races.get(row.trial.cell), self._experiment.metric.target
        if race is None or target is None or event.accuracy is None or event.accuracy >= target:
            return False
        race.advanced(row.trial, event.round)
        return race.overtaken(row.trial)

    def needed(self, trial: Trial) -> bool:
        """Say whether a trial has not been overtaken."""
        race = self._races.get(trial.cell)
        return race is None or not race.overtaken(trial)

    def ended(self, row: TrialProgress) -> None:
        """Count the folds that are left; note what a target took."""
        race = self._races.get(row.trial.cell)
        if race is not None:
            race.note(outcome_of(row.trial, self._folder))
        if row.trial.fold is not None:
            self._folds[row.trial.cell] -= 1
            self._due = self._due or not self._folds[row.trial.cell]


def source_of(experiment: Experiment, folder: Path) -> Source:
    """Return where the trials of an experiment come from."""
    search = experiment.blueprint.search
    if search is None:
        return ListedTrials(experiment, folder)
    from fedquilt.experiment.sweeping.search import Searched

    return Searched(experiment, search, folder)
