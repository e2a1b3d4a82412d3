"""What is known of a round's cohort before it answers, and what takes its updates in."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from torch import Tensor

from fedquilt.algorithm.updates import ClientUpdate


class Cohort(NamedTuple):
    """What is known of a round's cohort before it answers."""

    parameters: int
    weight: float
    clients: int
    population: int


class Fold(Protocol):
    """Takes in updates one at a time, in any order, and ends with one vector."""

    def add(self, update: ClientUpdate) -> None:
        """Take in one update. Its tensors may be overwritten after the call."""

    def finish(self) -> Tensor | None:
        """Return the result, or nothing if no weight was reported."""


Reduce = Callable[[Cohort], Fold]
"""The cohort -> an empty fold."""
