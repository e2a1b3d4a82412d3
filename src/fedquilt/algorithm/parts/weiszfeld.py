"""The geometric median by the smoothed Weiszfeld algorithm.

Pillutla, Kakade and Harchaoui, Robust Aggregation for Federated Learning (2022): from the weighted mean,

    β_k = α_k / max(ν, ‖v − w_k‖),    v ← Σ β_k·w_k / Σ β_k.

Every v is a mean Σ c_k·w_k of the updates, so that it is enough to know the updates' distances D_kj = ‖w_k − w_j‖²:
‖v − w_k‖² = (Dc)_k − cᵀDc / 2. An iteration costs m² products, whatever the size of the model.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.algorithm.parts.held import Updates, squared_distances, weighted_mean


def geometric_median_of(iterations: int, tolerance: float, smoothing: float, updates: Updates) -> Tensor:
    """Return the point with the least Σ α_k·‖v − w_k‖, the α_k being the shares of the weights.

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
