"""The loss of a batch, always Σ wᵢℓᵢ / Σ wᵢ: padding is weight 0, importance is weight p/q, everything else weight 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

IGNORED = -100
"""A target that does not count: padding in a sequence."""

Each = Callable[[Tensor, Tensor], tuple[Tensor, Tensor | None]]
"""(outputs, targets) -> the loss of every prediction, and 1 for those that count (None: all of them)."""


@dataclass(frozen=True)
class Loss:
    """The weighted mean of the losses of a batch's predictions.

    A batch whose weights are all zero has the loss 0. With `normalise=False` the weighted losses are divided by the number
    of predictions instead of by their weights (Hsu 2020, equation 1 instead of 4).

    `mean` is the mean without weights in a single call, where there is one: for small models that saves a tenth of a
    step.
    """

    each: Each
    mean: Callable[[Tensor, Tensor], Tensor] | None = None
    normalise: bool = True

    def __call__(self, outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; `weights` has one weight an example."""
        if weights is None and self.mean is not None:
            return self.mean(outputs, targets)
        losses, counted = self.each(outputs, targets)
        if weights is None and counted is None:
            return losses.mean()
        counted = torch.ones_like(losses) if counted is None else counted
        if weights is None:
            weighted = counted
        else:
            weighted = weights.reshape(-1, *[1] * (losses.dim() - 1)).expand_as(losses) * counted
        total = (weighted if self.normalise else counted).sum()
        return (weighted * losses).sum() / torch.where(total > 0, total, torch.ones_like(total))
