"""When local training has converged."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class LossStandsStill:
    """The mean loss of a pass has fallen by no more than `tolerance` of the one before, `patience` passes in a row.

    A loss that is not a number has not fallen.

    >>> done = LossStandsStill(tolerance=0.1, patience=2)
    >>> done([1.0, 0.5, 0.49]), done([1.0, 0.5, 0.49, 0.48])
    (False, True)
    """

    tolerance: float
    patience: int

    def __call__(self, losses: list[float]) -> bool:
        """Judge the losses of the passes so far."""
        last = losses[-self.patience - 1 :]
        falls = [before - after > self.tolerance * before for before, after in pairwise(last)]
        return len(falls) == self.patience and not any(falls)
