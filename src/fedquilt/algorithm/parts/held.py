"""Updates that are held until the whole cohort has answered, for reductions that need all of them at once.

Memory is that of the cohort's updates, O(m·d), and no more: the reductions work on some coordinates at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from fedquilt.algorithm.cohort import Cohort
from fedquilt.algorithm.updates import ClientUpdate

BLOCK = 2**20
"""Values of a block, over all clients: a bound on memory, fixed, because sums follow it."""


class Updates(NamedTuple):
    """The updates of those who have a say, in the order of their slots; there is at least one."""

    deltas: list[Tensor]
    weights: list[float]


Combine = Callable[[Updates], Tensor | None]
"""All updates of a round -> one, or nothing where they are too few."""


class Held:
    """Holds a copy of every update and combines them at the end; the order in which they come does not matter.

    A client without weight has no say; if nobody has one there is no result.
    """

    def __init__(self, combine: Combine, cohort: Cohort) -> None:
        """Hold nothing yet."""
        self._combine = combine
        self._held: dict[int, tuple[Tensor, float]] = {}

    def add(self, update: ClientUpdate) -> None:
        """Take in one update."""
        if update.weight > 0:
            self._held[update.slot] = (update.delta.clone(), update.weight)

    def finish(self) -> Tensor | None:
        """Combine what was taken in."""
        if not self._held:
            return None
        held = [self._held[slot] for slot in sorted(self._held)]
        return self._combine(Updates([delta for delta, _ in held], [weight for _, weight in held]))


def blocks(deltas: list[Tensor]) -> Iterator[Tensor]:
    """Yield vectors as matrices, a row each, some coordinates at a time.

    >>> list(blocks([torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])]))
    [tensor([[1., 2.], [3., 4.]])]
    """
    width = max(BLOCK // len(deltas), 1)
    for pieces in zip(*(torch.split(delta, width) for delta in deltas), strict=True):
        yield torch.stack(pieces)


def weighted_mean(deltas: list[Tensor], weights: Tensor) -> Tensor:
    """Return Σ w_k·δ_k / Σ w_k, in double precision and rounded once.

    >>> weighted_mean([torch.tensor([1.0, 2.0]), torch.tensor([5.0, 2.0])], torch.tensor([1.0, 3.0]))
    tensor([4., 2.])
    """
    weights = weights.double()
    return torch.cat([(weights @ block.double() / weights.sum()).float() for block in blocks(deltas)])


def squared_distances(deltas: list[Tensor]) -> Tensor:
    """Return ‖δ_i − δ_j‖² for all pairs, from the Gram matrix, in double precision.

    >>> squared_distances([torch.tensor([0.0, 0.0]), torch.tensor([3.0, 4.0])])
    tensor([[ 0., 25.], [25., 0.]], dtype=torch.float64)
    """
    gram = torch.zeros(len(deltas), len(deltas), dtype=torch.float64)
    for block in blocks(deltas):
        wide = block.double()
        gram += wide @ wide.T
    squares = gram.diagonal()
    distances = (squares[:, None] + squares[None, :] - gram - gram.T).clamp_(min=0)
    return distances.fill_diagonal_(0)
