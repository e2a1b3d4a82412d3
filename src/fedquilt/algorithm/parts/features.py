"""Gaussian estimates of clients' feature distributions, and samples of their mixture.

Wei et al. 2022, "Federated Learning for Non-IID Data: From Theory to Algorithm", Algorithm 1: every client estimates the
distribution of its features and sends the estimate's parameters; the server's is the mixture p = Σ p_k·p_k^φ, from which
clients draw. The paper does not say what is estimated. Here it is a Gaussian, with variances alone ("diagonal") or with the
whole covariance ("full").
"""

from __future__ import annotations

from math import isqrt
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedquilt.compute.layout import Tensors

Estimator = Literal["diagonal", "full"]


def estimate(features: Tensor, estimator: Estimator) -> Tensors:
    """Fit a Gaussian to features (n, D): `mean` (D), and `scale`.

    The scale is, for "diagonal", the standard deviations (D); for "full", the lower triangle of the L with a diagonal of
    0 or more for which L·Lᵀ is the covariance, row after row (D·(D + 1)/2). Moments are divided by n. L comes from a
    decomposition of the features, not of their covariance, so that fewer examples than dimensions are no special case.

    >>> both = estimate(torch.tensor([[1.0, 2.0], [3.0, 6.0]]), "full")
    >>> both["mean"], both["scale"].round(decimals=5)
    (tensor([2., 4.]), tensor([1., 2., 0.]))
    """
    exact = features.detach().double()
    mean = exact.mean(0)
    centred = exact - mean
    if estimator == "diagonal":
        scale = centred.square().mean(0).sqrt()
    else:
        scale = _packed(_factor(centred / len(centred) ** 0.5))
    return {"mean": mean.to(features.dtype), "scale": scale.to(features.dtype)}


def draw(
    means: Tensor, scales: Tensor, weights: Tensor, count: int, rng: np.random.Generator, estimator: Estimator
) -> Tensor:
    """Draw from the mixture of K Gaussians, `means` (K, D) and `scales` (K, ·) as estimated: (count, D), in float32.

    Every sample is of one component, by `weights` (K), which need not add up to 1. All randomness comes from `rng`.

    >>> means, scales = torch.tensor([[0.0], [8.0]]), torch.zeros(2, 1)
    >>> draw(means, scales, torch.tensor([1.0, 3.0]), 6, np.random.default_rng(0), "diagonal").flatten()
    tensor([8., 8., 0., 0., 8., 8.])
    """
    shares = weights.double().numpy()
    component = rng.choice(len(shares), size=count, p=shares / shares.sum())
    noise = torch.from_numpy(rng.standard_normal((count, means.shape[1]), dtype=np.float32))
    samples = means[component].float()
    if estimator == "diagonal":
        return samples + scales[component].float() * noise
    for k in np.unique(component):
        rows = component == k
        samples[rows] += noise[rows] @ unpacked(scales[k].float()).T
    return samples


def unpacked(scale: Tensor) -> Tensor:
    """Return the lower triangular matrix that a "full" scale holds.

    >>> unpacked(torch.tensor([1.0, 2.0, 3.0]))
    tensor([[1., 0.],
            [2., 3.]])
    """
    size = (isqrt(8 * len(scale) + 1) - 1) // 2
    matrix = scale.new_zeros(size, size)
    matrix[tuple(torch.tril_indices(size, size))] = scale
    return matrix


def _packed(lower: Tensor) -> Tensor:
    size = len(lower)
    return lower[tuple(torch.tril_indices(size, size))]


def _factor(rows: Tensor) -> Tensor:
    """Return the lower triangular L with L·Lᵀ = rowsᵀ·rows."""
    upper = torch.linalg.qr(rows, mode="r").R
    upper = torch.nn.functional.pad(upper, (0, 0, 0, rows.shape[1] - len(upper)))
    # A decomposition leaves the signs of the rows open.
    return torch.where(upper.diagonal() < 0, -upper.T, upper.T)
