"""Values that may change from round to round. Rounds count from 1."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """`initial · decay^(round − 1)`; with a decay of 1, a constant.

    McMahan 2017 (Figure 4) decays the learning rate by 0.9934 (FedSGD) or 0.99 (FedAvg) a round on CIFAR-10.

    >>> Schedule(0.1)(50), round(Schedule(0.1, decay=0.5)(3), 6)
    (0.1, 0.025)
    """

    initial: float
    decay: float = 1.0

    def __call__(self, round_: int) -> float:
        """Return the value of a round."""
        return self.initial * self.decay ** (round_ - 1)
