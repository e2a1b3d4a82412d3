"""The loss of a batch, always Σ wᵢℓᵢ / Σ wᵢ: padding is weight 0, importance is weight p/q, everything else weight 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedquilt.base.errors import SpecError
from fedquilt.base.records import replaced
from fedquilt.data.data import IGNORED

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

    def __call__(
        self, outputs: Tensor, targets: Tensor, weights: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Return the loss of a batch; `weights` has one weight per example, and `mask` is 0 for padding.

        Padding has the weight 0. So may have an example, which still is one of those that are counted.

        >>> unnormalised = Loss(lambda outputs, targets: ((outputs - targets).square(), None), normalise=False)
        >>> values, zeros = torch.tensor([2.0, 3.0, 5.0]), torch.zeros(3)
        >>> unnormalised(values, zeros, torch.tensor([1.0, 0.0, 0.0]), torch.tensor([1.0, 1.0, 0.0]))  # 4 / 2
        tensor(2.)
        """
        if weights is None and self.mean is not None:
            return self.mean(outputs, targets)
        losses, counted = self.each(outputs, targets)
        if weights is None and counted is None:
            return losses.mean()
        counted = torch.ones_like(losses) if counted is None else counted
        weighted = counted if weights is None else _each_prediction(weights, losses) * counted
        if self.normalise:
            total = weighted.sum()
        else:
            total = (counted if mask is None else _each_prediction(mask, losses) * counted).sum()
        return (weighted * losses).sum() / torch.where(total > 0, total, torch.ones_like(total))


def _each_prediction(values: Tensor, losses: Tensor) -> Tensor:
    """Repeat one value per example for each of its predictions."""
    return values.reshape(-1, *[1] * (losses.dim() - 1)).expand_as(losses)


def with_loss(part: Any, loss: Loss) -> Any:
    """Return a method, or any part of one, with another loss wherever it has one: in a client's second training too.

    >>> from fedquilt import fed_avg, fine_tuned
    >>> changed = with_loss(fine_tuned(fed_avg()), Loss(print))
    >>> changed.loss.each is changed.per_client.personalise.by.loss.each is print
    True
    """
    return replaced(part, Loss, lambda before: replace(loss, normalise=before.normalise))


@dataclass(frozen=True)
class OwnLoss:
    """A function of the user's own, of outputs and targets, that returns the loss of every prediction."""

    function: Callable[[Tensor, Tensor], Tensor]
    name: str

    def __call__(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the losses; ignored positions of a sequence have loss and weight 0."""
        values, classes = self.function(outputs, targets), not targets.is_floating_point()
        wanted = targets.shape if classes else targets.shape[:1]
        if not isinstance(values, Tensor) or values.shape != wanted:
            got = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else f"type {type(values).__name__}"
            raise SpecError(
                f"loss: {self.name} must return one loss per prediction, a tensor of shape {tuple(wanted)} (with torch's "
                f'losses: reduction="none"); it returned something of {got}'
            )
        if not classes or targets.dim() == 1:
            return values, None
        counted = targets != IGNORED
        return values.where(counted, values.new_zeros(())), counted.to(values.dtype)
