"""Robust federated aggregation (RFA): the geometric median of the updates.

Pillutla, Kakade and Harchaoui, Robust Aggregation for Federated Learning (2022): the v with the least
Σ α_k·‖v − w_k‖, by the smoothed Weiszfeld algorithm.
"""

from __future__ import annotations

from functools import partial

from fedquilt.algorithm.algorithm import Algorithm, claim
from fedquilt.algorithm.parts.held import Held
from fedquilt.algorithm.parts.robust import geometric_median_of
from fedquilt.base.arguments import Count, NonNegative, Positive
from fedquilt.base.registry import wrappers


@wrappers.register
def geometric_median(
    algorithm: Algorithm, iterations: Count = 1000, tolerance: NonNegative = 1e-6, smoothing: Positive = 1e-6
) -> Algorithm:
    """Take the point with the least weighted distance to all updates (Pillutla 2022).

    It withstands clients with less than half of the weight; the weights are those of the wrapped method, by examples.

    - `iterations` bounds the steps of the smoothed Weiszfeld algorithm, which starts from the weighted mean. In a
      federation each is a round of messages, so that the paper takes few; here they cost next to nothing.
    - `tolerance` ends it early: when the gradient of Σ α_k·‖v − w_k‖, with Σ α_k = 1, is no longer than that.
    - `smoothing` is the paper's ν, the distance below which an update attracts no more strongly.

    The server holds all of a round's updates at once.

    >>> from fedquilt import fed_avg
    >>> geometric_median(fed_avg(), iterations=3).applied.claims
    (('reduce', 'geometric_median'),)
    """
    combine = partial(geometric_median_of, iterations, tolerance, smoothing)
    return claim(algorithm, "geometric_median", reduce=partial(Held, combine))
