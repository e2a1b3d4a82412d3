"""The loss of a batch, always Σ wᵢℓᵢ / Σ wᵢ: padding is weight 0, importance is weight p/q, everything else weight 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

IGNORED = -100
"""A target that does not count: padding in a sequence."""

Each = Callable[[Tensor, Tensor], tuple[Tensor, Tensor | None]]
"""(outputs, targets) -> the loss of every prediction, and 1 for those that count (None: all of them)."""


@dataclass(frozen=True)
class Loss:
    """The weighted mean of the losses of a batch's predictions.

    `mean` is the mean without weights in a single call, where there is one: for small models that saves a tenth of a
    step.
    """

    each: Each
    mean: Callable[[Tensor, Tensor], Tensor] | None = None

    def __call__(self, outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; `weights` has one weight an example."""
        if weights is None and self.mean is not None:
            return self.mean(outputs, targets)
        losses, counted = self.each(outputs, targets)
        if weights is not None:
            each = weights.reshape(-1, *[1] * (losses.dim() - 1)).expand_as(losses)
            counted = each if counted is None else each * counted
        if counted is None:
            return losses.mean()
        return (counted * losses).sum() / counted.sum()
