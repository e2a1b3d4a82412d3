"""How a cohort's updates become one, and how much each counts: the weighted mean, and what robust reductions need.

Robust reductions need all updates at once: they are held until the whole cohort has answered. Memory is that of
the cohort's updates, O(m·d), and no more: the reductions work on some coordinates at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from fedquilt.algorithm.exact import ExactMean
from fedquilt.algorithm.updates import BlockUpdate, ClientUpdate, Cohort, PartialSum

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


def mean_of_ranks(deltas: list[Tensor], dropped: int) -> Tensor:
    """Return the mean, in every coordinate, without the `dropped` smallest and as many largest values; unweighted."""
    means = []
    for block in blocks(deltas):
        block.numpy().sort(axis=0)  # in place; much faster than torch's sort along a short axis
        means.append(block[dropped : len(deltas) - dropped].double().mean(dim=0).float())
    return torch.cat(means)


class WeightedMean:
    """The exact mean of the updates, weighted as they report; the same bits in whatever order they come."""

    def __init__(self, cohort: Cohort) -> None:
        self._mean = ExactMean(cohort.parameters, cohort.weight)

    def add(self, update: ClientUpdate) -> None:
        """Take in one update."""
        self._mean.add(update.slot, update.delta, update.weight)

    def add_block(self, block: BlockUpdate) -> None:
        """Take in the updates of a block at once."""
        self._mean.add_rows(block.slots, block.values.vector, block.weights)

    def add_sum(self, part: PartialSum) -> None:
        """Take in updates that were summed where they were made."""
        self._mean.add_sum(part.slots, part.total, part.weights)

    @property
    def total(self) -> Tensor:
        """What was taken in, as integers."""
        return self._mean.total

    def finish(self) -> Tensor | None:
        """Return the mean."""
        return self._mean.finish()


def equally(examples: int) -> float:
    """Weigh every client the same, as Hsu 2020's FedVC does."""
    return 1.0


def by_examples(examples: int) -> float:
    """Weigh a client by its number of examples, as McMahan 2017's Algorithm 1 does.

    The mean is over those who reported: n_k / n with n their sum, so that a client that drops out needs no correction.
    """
    return float(examples)
