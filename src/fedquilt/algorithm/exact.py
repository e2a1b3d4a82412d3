"""Sums over clients that are exact and the same in every order.

Each term is rounded once to a fixed-point number, q = rint(x · w · 2^s), and the q are added as 64-bit integers. With
s = 62 − 20 − ⌈log2 of the planned weight⌉ the sum of a whole cohort with |x| < 2^20 fits; a larger value is a fault of the
client that sent it. Integer sums are also what secure aggregation needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedquilt.base.errors import OverflowInSumError
from fedquilt.compute.kernels.exact import add_whole

LARGEST = 2.0**20
"""Values at or above this cannot be summed."""

LARGEST_WEIGHT = 2.0**60
"""A cohort's weights must stay below this."""

_INT64_MAX = 2**63 - 1

_EXPONENTS = tuple(range(160, -192, -32))
"""The places of `WideMean`'s digits, as powers of two."""


class ExactMean:
    """A weighted mean of vectors, the same bits in whatever order they come.

    >>> mean = ExactMean(2, planned_weight=4.0)
    >>> mean.add(0, torch.tensor([1.0, 2.0]), 1.0)
    >>> mean.add(1, torch.tensor([5.0, 2.0]), 3.0)
    >>> mean.finish()
    tensor([4., 2.])
    """

    def __init__(self, size: int, planned_weight: float) -> None:
        """Make an empty sum of vectors of that length, for a cohort of that total weight."""
        self._shift = 62 - 20 - math.ceil(math.log2(planned_weight)) if planned_weight > 0 else 0
        self._sum = torch.zeros(size, dtype=torch.int64)
        self._weights: dict[int, float] = {}
        self._bound = 0

    def add(self, slot: int, delta: Tensor, weight: float) -> None:
        """Take in one vector, whose values must be finite."""
        self.add_rows([slot], delta[None], [weight])

    def add_rows(self, slots: Sequence[int], deltas: Tensor, weights: Sequence[float]) -> None:
        """Take in several vectors, the rows of a matrix: the same bits as one by one. After an error, there is no mean.

        >>> mean = ExactMean(2, planned_weight=4.0)
        >>> mean.add_rows([0, 1], torch.tensor([[1.0, 2.0], [5.0, 2.0]]), [1.0, 3.0])
        >>> mean.finish()
        tensor([4., 2.])
        """
        self._weights.update(zip(slots, weights, strict=True))
        largest = add_whole(self._sum, deltas, [math.ldexp(weight, self._shift) for weight in weights])
        self._reserve(sum(int(value) + 1 for value in largest))

    def add_sum(self, slots: Sequence[int], total: Tensor, weights: Sequence[float]) -> None:
        """Take in what another mean for the same cohort has summed: the same bits as its vectors one by one.

        >>> part, mean = ExactMean(2, planned_weight=4.0), ExactMean(2, planned_weight=4.0)
        >>> part.add(0, torch.tensor([1.0, 2.0]), 1.0)
        >>> part.add(1, torch.tensor([5.0, 2.0]), 3.0)
        >>> mean.add_sum([0, 1], part.total, [1.0, 3.0])
        >>> mean.finish()
        tensor([4., 2.])
        """
        self._weights.update(zip(slots, weights, strict=True))
        if not len(total):
            return
        low, high = torch.aminmax(total)
        self._reserve(max(-int(low), int(high), 0))
        self._sum.add_(total)

    @property
    def total(self) -> Tensor:
        """The sum so far, as integers."""
        return self._sum

    def _reserve(self, bound: int) -> None:
        self._bound += bound
        if self._bound > _INT64_MAX:
            raise OverflowInSumError(
                "the exact sum over clients would overflow: the reported weights are larger than the planned ones "
                f"(so far {math.fsum(self._weights.values()):g}); the round was not applied"
            )

    def finish(self) -> Tensor | None:
        """Return the mean over what was taken in, or nothing if its weight is zero."""
        weight = math.fsum(self._weights[slot] for slot in sorted(self._weights))
        if weight <= 0:
            return None
        return (self._sum.double().mul_(math.ldexp(1.0, -self._shift)) / weight).float()


class WideMean:
    """A weighted mean of vectors whose values may be of any size, the same bits in whatever order they come.

    For buffers: a normalisation layer's statistics may exceed what `ExactMean` can sum. Each term x·w is cut into digits
    of 32 bits, from 2^191 down to 2^−160, which are added up as integers, each place by itself. That is room for every
    float32 times a weight below 2^60; a larger weight is refused.

    >>> mean = WideMean(2)
    >>> mean.add(1, torch.tensor([float("-inf"), 4e9]), 1.0)
    >>> mean.add(0, torch.tensor([float("-inf"), 0.0]), 3.0)
    >>> mean.finish()
    tensor([     -inf, 1.0000e+09])
    """

    def __init__(self, size: int) -> None:
        self._digits = torch.zeros(len(_EXPONENTS), size, dtype=torch.int64)
        self._infinite = torch.zeros(size, dtype=torch.float64)
        self._weights: dict[int, float] = {}

    def add(self, slot: int, values: Tensor, weight: float) -> None:
        """Take in one vector; one without weight has no say."""
        if weight <= 0:
            return
        if not weight < LARGEST_WEIGHT:
            raise OverflowInSumError(
                f"the sum of buffers over clients would overflow: a client's weight is {weight:g}, and the limit is "
                f"{LARGEST_WEIGHT:g}; the round was not applied"
            )
        self._weights[slot] = weight
        left = values.double() * weight
        self._infinite += torch.where(left.isfinite(), 0.0, left)
        left = torch.where(left.isfinite(), left, 0.0)
        for digits, exponent in zip(self._digits, _EXPONENTS, strict=True):
            digit = (left * math.ldexp(1.0, -exponent)).trunc()
            digits.add_(digit.long())
            left -= digit * math.ldexp(1.0, exponent)

    def finish(self) -> Tensor:
        """Return the mean over what was taken in, which must not be nothing."""
        total = torch.zeros_like(self._infinite)
        for digits, exponent in zip(self._digits, _EXPONENTS, strict=True):
            total += digits.double() * math.ldexp(1.0, exponent)
        weight = math.fsum(self._weights[slot] for slot in sorted(self._weights))
        return ((total + self._infinite) / weight).float()
