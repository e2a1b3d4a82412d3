"""The loss of a batch, always Σ wᵢℓᵢ / Σ wᵢ: padding is weight 0, importance is weight p/q, everything else weight 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

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


def with_loss(part: Any, loss: Loss) -> Any:
    """Return a method, or any part of one, with another loss wherever it has one: in a client's second training too.

    >>> from fedquilt import fed_avg, fine_tuned
    >>> changed = with_loss(fine_tuned(fed_avg()), Loss(print))
    >>> changed.loss.each is changed.personalise.by.loss.each is print
    True
    """
    if isinstance(part, Loss):
        return replace(loss, normalise=part.normalise)
    if isinstance(part, tuple) and type(part) is tuple:
        return tuple(with_loss(each, loss) for each in part)
    if isinstance(part, partial):
        named = {key: with_loss(each, loss) for key, each in part.keywords.items()}
        return partial(part.func, *(with_loss(each, loss) for each in part.args), **named)
    if is_dataclass(part) and not isinstance(part, type):
        before = {field.name: getattr(part, field.name) for field in fields(part) if field.init}
        after = {name: with_loss(each, loss) for name, each in before.items()}
        changed = {name: each for name, each in after.items() if each is not before[name]}
        return replace(part, **changed) if changed else part
    return part
