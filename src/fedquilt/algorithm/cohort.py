"""What is known of a round's cohort before it answers, and what takes its updates in."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from fedquilt.algorithm.updates import BlockUpdate, ClientUpdate, PartialSum


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


@runtime_checkable
class BlockFold(Fold, Protocol):
    """A fold that can take in the updates of a block of clients at once, with the same bits."""

    def add_block(self, block: BlockUpdate) -> None:
        """Take in the updates of a block. Its tensors may be overwritten after the call."""


@runtime_checkable
class SummingFold(Fold, Protocol):
    """A fold that is an exact sum: parts of it can be made elsewhere, and have the same bits."""

    @property
    def total(self) -> Tensor:
        """What was taken in, as 64-bit integers."""

    def add_sum(self, part: PartialSum) -> None:
        """Take in what another such fold, for the same cohort, has taken in."""


Reduce = Callable[[Cohort], Fold]
"""The cohort -> an empty fold."""
