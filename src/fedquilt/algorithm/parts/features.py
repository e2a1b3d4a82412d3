"""What FedAvgR does with features: Gaussian estimates of their distributions, samples of their mixture, and penalties.

Wei et al. 2022, "Federated Learning for Non-IID Data: From Theory to Algorithm". Algorithm 1: every client estimates the
distribution of its features and sends the estimate's parameters; the server's is the mixture p = Σ p_k·p_k^φ, from which
clients draw. The paper does not say what is estimated. Here it is a Gaussian, with variances alone ("diagonal") or with the
whole covariance ("full"). Section 4.1: the objective adds α‖W‖_* + β‖φ(X)‖_F + γ·MMD to the mean loss. Each of these has a
subgradient, never NaN, where it is not differentiable.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedquilt.algorithm.penalty import Seen
from fedquilt.compute.layout import Tensors

Estimator = Literal["diagonal", "full"]
Norm = Literal["batch", "client"]


@dataclass(frozen=True)
class FeaturePenalty:
    """α‖W‖_* + β‖φ(X)‖_F + γ·MMD, as a penalty's `value`; what the exchange `name` gives has the client's part of it.

    That is `drawn`, samples of all clients' features, for γ, and `examples`, how many the client has, for the norm
    "client". A record of numbers, so that a kernel can take the steps.
    """

    name: str
    alpha: float
    beta: float
    gamma: float
    norm: Norm = "batch"
    squared: bool = False

    def __call__(self, seen: Seen) -> Tensor:
        """Return the penalty of a step."""
        terms = []
        if self.alpha:
            terms.append(self.alpha * trace_norm(seen.classifier))
        if self.beta:
            length = self.beta * frobenius(seen.features, seen.mask)
            whole = self.norm == "client"
            terms.append(length * (seen.given[self.name]["examples"] / seen.examples).sqrt() if whole else length)
        if self.gamma:
            terms.append(self.gamma * mmd(seen.features, seen.given[self.name]["drawn"], self.squared, seen.mask))
        return torch.stack(terms).sum()


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
    """Return the lower triangular matrix that a "full" scale holds."""
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


def trace_norm(matrix: Tensor) -> Tensor:
    """Return ‖W‖_*, the sum of a matrix's singular values.

    With W = U·S·Vᵀ the gradient is U_r·V_rᵀ over the r singular values that are not 0 up to rounding: the shortest
    subgradient, and 0 at W = 0. (What differentiating an SVD gives at lower rank depends on the vectors that it happened to
    choose.) The gradient is itself taken as constant.

    >>> w = torch.tensor([[3.0, 0.0], [0.0, 0.0]], requires_grad=True)
    >>> trace_norm(w).item(), torch.autograd.grad(trace_norm(w), w)[0].abs().tolist()
    (3.0, [[1.0, 0.0], [0.0, 0.0]])
    """
    here = matrix.detach()
    u, s, vt = torch.linalg.svd(here, full_matrices=False)
    rounding = s.amax() * max(matrix.shape) * torch.finfo(s.dtype).eps
    gradient = (u * (s > rounding)) @ vt
    value: Tensor = s.sum() + ((matrix - here) * gradient).sum()
    return value


def frobenius(features: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return ‖φ(X)‖_F, the root of the sum of squares over all examples and features; its gradient at 0 is 0.

    `mask` is 0 for rows that are padding.
    """
    length: Tensor = torch.linalg.vector_norm(features if mask is None else features * mask[:, None])
    return length


def mmd(features: Tensor, drawn: Tensor, squared: bool = False, mask: Tensor | None = None) -> Tensor:
    """Return the distance of the means of two samples, (n, D) and (m, D): ‖mean φ(x) − mean z‖, or its square.

    This is the maximum mean discrepancy as Wei 2022 defines it, with the inner product of the features themselves: it
    compares means in the feature space and nothing else, so that two distributions of one mean are at distance 0. Its
    gradient at 0 is 0. `mask` is 0 for rows of the features that are padding.

    >>> mmd(torch.tensor([[0.0, 1.0], [2.0, 1.0]]), torch.tensor([[4.0, 5.0]]))
    tensor(5.)
    """
    mean = features.mean(0) if mask is None else (features * mask[:, None]).sum(0) / mask.sum().clamp(min=1)
    apart = mean - drawn.mean(0)
    distance: Tensor = apart.square().sum() if squared else torch.linalg.vector_norm(apart)
    return distance
