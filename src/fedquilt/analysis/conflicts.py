"""Two causes that Ozdayi 2020 gives for federated models being worse: hypothesis conflicts and parameter divergence.

The paper has a definition of the first (§3.1) and a picture of the second (§3.2, Figure 2), and a number for neither. The
numbers here are our reading of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


def conflict_rate(predictions: Tensor) -> float:
    """Return how often two clients' models disagree: the mean over pairs of the share of inputs with different classes.

    Ozdayi 2020 (§3.1): two models conflict if there is an input x with f_i(x) ≠ f_j(x). With real models there always is
    one, so that it is counted how often.

    predictions: classes, whole numbers from 0, of shape (models, inputs). A model alone conflicts with none.

    >>> conflict_rate(torch.tensor([[0, 1, 2, 2], [0, 1, 1, 1], [0, 1, 1, 0]]))
    0.4166666666666667
    """
    if predictions.ndim != 2 or predictions.numel() == 0:
        raise ValueError(f"predictions must be of shape (models, inputs), got {tuple(predictions.shape)}")
    if predictions.is_floating_point() or bool((predictions < 0).any()):
        raise ValueError("predictions must be classes, integers from 0; take the argmax of the scores first")
    models, inputs = predictions.shape
    if models == 1:
        return 0.0
    # Counts of classes instead of pairs of models: n_c models that agree on c make n_c(n_c − 1)/2 pairs.
    chosen = predictions.long()
    counts = chosen.new_zeros(int(chosen.max()) + 1, inputs)
    counts.scatter_add_(0, chosen, chosen.new_ones(1, 1).expand_as(chosen))
    pairs = inputs * models * (models - 1) // 2
    agreeing = int((counts * (counts - 1)).sum()) // 2
    return (pairs - agreeing) / pairs


@dataclass(frozen=True)
class Divergence:
    """How far the clients' models lie from their mean.

    >>> Divergence(distance=1.0, relative=0.5).relative
    0.5
    """

    distance: float
    """(1/K)·Σ ‖w_k − w̄‖₂, with w̄ = (1/K)·Σ w_k."""
    relative: float
    """The distance divided by ‖w̄‖₂."""


def parameter_divergence(vectors: Tensor) -> Divergence:
    """Return the mean L2 distance of the clients' models from their mean, and that divided by the mean's norm.

    Ozdayi 2020 (§3.2, Figure 2) has no formula, and refers to Zhao 2018, whose weight divergence is ‖w_fl − w_sgd‖/‖w_sgd‖
    against a model trained on all data together. There is none such here: the plain mean of the clients' models stands
    for it. Given updates instead of models, the distance is the same, since all start from one model; the relative form
    is not, and is infinite where updates cancel out.

    vectors: one flat vector a client, of shape (clients, parameters).

    >>> parameter_divergence(torch.tensor([[3.0, 0.0], [3.0, 8.0]]))
    Divergence(distance=4.0, relative=0.8)
    """
    if vectors.ndim != 2 or vectors.numel() == 0:
        raise ValueError(f"vectors must be of shape (clients, parameters), got {tuple(vectors.shape)}")
    vectors = vectors.detach()
    # One client at a time, since `vectors.mean(dtype=torch.float64)` would copy all models.
    mean = vectors.new_zeros(vectors.shape[1], dtype=torch.float64)
    for vector in vectors:
        mean += vector
    mean /= len(vectors)
    distance = math.fsum(float(torch.linalg.vector_norm(vector - mean)) for vector in vectors) / len(vectors)
    scale = float(torch.linalg.vector_norm(mean))
    if scale == 0:
        return Divergence(distance, math.inf if distance > 0 else 0.0)
    return Divergence(distance, distance / scale)
