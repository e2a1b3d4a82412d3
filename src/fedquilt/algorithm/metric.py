"""A metric: a value for every prediction, whose mean over a split it reports.

The sums of chunks are added exactly, so that neither the order nor the number of workers shows in the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedquilt.base.errors import FedquiltError, SpecError, reason_of

Values = Callable[[Tensor, Tensor], Tensor]
"""(outputs, targets), one row per prediction -> one value per prediction. Padding is taken out before."""


@dataclass(frozen=True)
class Metric:
    """The mean of a value over all predictions, or what `finish` makes of that mean.

    `classes` is how many classes the data must have for the metric to mean something; 0: it needs none.

    >>> import math
    >>> rmse = Metric("rmse", lambda outputs, targets: (outputs.squeeze(-1) - targets).square(), math.sqrt)
    >>> rmse.finished(rmse.total(torch.tensor([[1.0], [4.0]]), torch.tensor([1.0, 0.0])) / 2)
    2.8284271247461903
    """

    name: str
    each: Values
    finish: Callable[[float], float] | None = None
    classes: int = 0

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the values of some predictions."""
        return self.each(outputs, targets)

    def total(self, outputs: Tensor, targets: Tensor) -> float:
        """Return the sum over some predictions."""
        try:
            values = self.each(outputs, targets)
        except FedquiltError:
            raise
        except Exception as error:
            raise SpecError(f"metrics: {self.name} failed: {reason_of(error)}") from error
        if not isinstance(values, Tensor) or values.shape != targets.shape[:1]:
            got = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else f"type {type(values).__name__}"
            raise SpecError(
                f"metrics: {self.name} must return a tensor with one value per prediction, of shape {(len(targets),)}; "
                f"it returned something of {got}"
            )
        return float(values.to(torch.float64).sum())

    def finished(self, mean: float) -> float:
        """Return the metric from the mean of its values."""
        try:
            return mean if self.finish is None else self.finish(mean)
        except Exception as error:
            raise SpecError(f"metrics: {self.name} failed on the mean {mean:g}: {reason_of(error)}") from error
