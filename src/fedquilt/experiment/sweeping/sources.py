"""Which trials a sweep runs: those that an experiment lists, or those that a search proposes as others end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.design.trial import Trial
from fedquilt.experiment.sweeping.board import TrialProgress
from fedquilt.experiment.sweeping.places import Advanced


class Source(Protocol):
    """Where the trials of a sweep come from."""

    def more(self) -> Sequence[Trial]:
        """Return trials to run that were not returned before, for as far as they can be known now."""

    def advanced(self, row: TrialProgress, event: Advanced) -> bool:
        """A trial has ended a round; say whether it is to be given up."""

    def ended(self, row: TrialProgress) -> None:
        """A trial has ended, or was found finished."""


class Listed:
    """Trials that are known beforehand; none is given up."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        """Take the list."""
        self._trials: Sequence[Trial] = trials

    def more(self) -> Sequence[Trial]:
        """Return all of them, once."""
        trials, self._trials = self._trials, ()
        return trials

    def advanced(self, row: TrialProgress, event: Advanced) -> bool:
        """Go on."""
        return False

    def ended(self, row: TrialProgress) -> None:
        """Nothing follows from it."""


def source_of(experiment: Experiment, folder: Path) -> Source:
    """Return where the trials of an experiment come from."""
    return Listed(experiment.trials)
