"""Which trials a sweep runs: those that an experiment lists, or those that a search proposes as others end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fedquilt.experiment.design.trial import Trial
from fedquilt.experiment.sweeping.board import TrialProgress


class Source(Protocol):
    """Where the trials of a sweep come from."""

    def more(self) -> Sequence[Trial]:
        """Return trials to run that were not returned before, for as far as they can be known now."""

    def advanced(self, row: TrialProgress, accuracy: float) -> bool:
        """A trial was evaluated; say whether it is to be given up."""

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

    def advanced(self, row: TrialProgress, accuracy: float) -> bool:
        """Go on."""
        return False

    def ended(self, row: TrialProgress) -> None:
        """Nothing follows from it."""
