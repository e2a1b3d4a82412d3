"""Robust federated aggregation (RFA): the geometric median of the updates.

Pillutla, Kakade and Harchaoui, Robust Aggregation for Federated Learning (2022): the v with the least
Σ α_k·‖v − w_k‖, by the smoothed Weiszfeld algorithm.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from fedquilt.algorithm.algorithm import Algorithm, claim
from fedquilt.algorithm.parts.reduction import Held, Updates, squared_distances, weighted_mean
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


def geometric_median_of(iterations: int, tolerance: float, smoothing: float, updates: Updates) -> Tensor:
    """Return the point with the least Σ α_k·‖v − w_k‖, the α_k being the shares of the weights.

    From the weighted mean: β_k = α_k / max(ν, ‖v − w_k‖), v ← Σ β_k·w_k / Σ β_k, with ν the `smoothing`. Every v is a mean
    Σ c_k·w_k of the updates, so that it is enough to know the updates' distances D_kj = ‖w_k − w_j‖²:
    ‖v − w_k‖² = (Dc)_k − cᵀDc / 2. An iteration costs m² products, whatever the size of the model.

    It ends early when the sum's gradient is no longer than `tolerance`. That has no unit: each α_k·‖v − w_k‖ adds a vector
    of length α_k to it.

    >>> updates = Updates([torch.tensor([x, 0.0]) for x in (0.0, 1.0, 99.0)], [1.0, 1.0, 1.0])
    >>> geometric_median_of(1000, 1e-6, 1e-6, updates)  # on a line it is the median
    tensor([1., 0.])
    """
    alpha = torch.tensor(updates.weights, dtype=torch.float64)
    alpha /= alpha.sum()
    distances = squared_distances(updates.deltas)
    share = alpha
    for _ in range(iterations):
        reached = distances @ share
        away = (reached - share @ reached / 2).clamp_(min=0).sqrt_()
        beta = alpha / away.clamp_(min=smoothing)
        moved = beta / beta.sum() - share
        share = share + moved
        # v moves by −gradient / Σβ, and ‖Σ e_k·w_k‖² = −eᵀDe / 2 where Σ e_k = 0.
        step = (-(moved @ distances @ moved) / 2).clamp_(min=0).sqrt_()
        if step * beta.sum() <= tolerance:
            break
    return weighted_mean(updates.deltas, share)
