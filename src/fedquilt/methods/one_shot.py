"""One-shot averaging: Zinkevich et al., Parallelized Stochastic Gradient Descent (2010); compared with in Wei 2022.

"OneShot aggregates local models when local trainings converge" (Wei 2022, §5.3): every client trains on its own until its
loss stands still, and the models are averaged once, with weights n_k / n. Wei 2022 gives no criterion of convergence; ours
is the mean training loss of a pass over the data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from fedquilt.algorithm.algorithm import Algorithm, Course
from fedquilt.algorithm.parts.sampling import DropLast
from fedquilt.base.arguments import BatchSize, Count, Momentum, NonNegative, Rate
from fedquilt.base.registry import methods
from fedquilt.methods.fed_avg import fed_avg


@methods.register
def one_shot(
    lr: Rate = 0.1,
    batch: BatchSize = 10,
    tolerance: NonNegative = 1e-3,
    patience: Count = 1,
    max_epochs: Count = 100,
    momentum: Momentum = 0.0,
    weight_decay: NonNegative = 0.0,
    drop_last: DropLast = "auto",
) -> Algorithm:
    """Train every client until it converges, and average once (Zinkevich 2010, Wei 2022).

    A client stops when the mean training loss of a pass over its data has fallen by no more than `tolerance` of the one
    before, `patience` passes in a row, or after `max_epochs`. Training ends after one round, whatever `rounds` says.

    >>> one_shot(tolerance=0.01).course.last_round
    1
    """
    base = fed_avg(lr, 1.0, max_epochs, batch, momentum, weight_decay, drop_last=drop_last)
    return replace(base, name="one_shot", course=Course(until=LossStandsStill(tolerance, patience), last_round=1))


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
