"""Penalties on a classifier's weights and on features: pure functions, to be added to a loss.

Wei et al. 2022, "Federated Learning for Non-IID Data: From Theory to Algorithm", section 4.1, whose objective adds
α‖W‖_* + β‖φ(X)‖_F + γ·MMD to the mean loss. Each has a subgradient, never NaN, where it is not differentiable.
"""

from __future__ import annotations

import torch
from torch import Tensor


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

    >>> frobenius(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor(5.)
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
