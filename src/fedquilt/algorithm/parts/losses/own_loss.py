"""A loss function of the user's own, with its result checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from fedquilt.base.errors import SpecError
from fedquilt.data.data import IGNORED


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
