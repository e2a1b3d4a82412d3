"""How a cohort's updates become one, and how much each counts: the weighted mean. Robust ones are in `robust.py`."""

from __future__ import annotations

from torch import Tensor

from fedquilt.algorithm.cohort import Cohort
from fedquilt.algorithm.exact import ExactMean
from fedquilt.algorithm.updates import BlockUpdate, ClientUpdate, PartialSum


class WeightedMean:
    """The exact mean of the updates, weighted as they report; the same bits in whatever order they come."""

    def __init__(self, cohort: Cohort) -> None:
        """Make an empty mean."""
        self._mean = ExactMean(cohort.parameters, cohort.weight)

    def add(self, update: ClientUpdate) -> None:
        """Take in one update."""
        self._mean.add(update.slot, update.delta, update.weight)

    def add_block(self, block: BlockUpdate) -> None:
        """Take in the updates of a block at once."""
        self._mean.add_rows(block.slots, block.values.vector, block.weights)

    def add_sum(self, part: PartialSum) -> None:
        """Take in updates that were summed where they were made."""
        self._mean.add_sum(part.slots, part.total, part.weights)

    @property
    def total(self) -> Tensor:
        """What was taken in, as integers."""
        return self._mean.total

    def finish(self) -> Tensor | None:
        """Return the mean."""
        return self._mean.finish()


def equally(examples: int) -> float:
    """Weigh every client the same, as Hsu 2020's FedVC does."""
    return 1.0


def by_examples(examples: int) -> float:
    """Weigh a client by its number of examples, as McMahan 2017's Algorithm 1 does.

    The mean is over those who reported: n_k / n with n their sum, so that a client that drops out needs no correction.
    """
    return float(examples)
