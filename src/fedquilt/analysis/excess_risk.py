"""The terms of Wei 2022's excess-risk bound: what averaging over clients that differ may cost ("FedAvgR", §3).

Theorem 4 (equation 7), for labels predicted by Wᵀφ(x) with C classes, K clients of n_k examples, n = Σ n_k:

    E_p(f̂) − E_p(f*) ≤ O(G₁ + G₂ + G₃) with probability of at least 1 − 3δ

    agnostic       G₁ = disc(p̂, p) + Σ_k (p̂_k/n_k)·B√C·‖φ(Xᵏ)‖_F + √(S(p̂‖n̄)·log(2/δ) / 2n)
    approximation  G₂ = (1/n)·B√C·‖φ(X)‖_F + √(log(2/δ) / 2n)
    federated      G₃ = Σ_k p_k·[disc(p_k, p) + (1/n_k)·B√C·‖φ(Xᵏ)‖_F + √(log(2/δ) / 2n_k)]

The numbers are for comparing runs and rounds, and no bound by themselves:

- The O(…) leaves out the constants of Theorems 1 to 3: 2, 4√2·λ and 6M, where the loss is λ-Lipschitz and at most M.
  Theorem 4 leaves out log(2/δ)/2 as well; it is kept here, as Theorems 1 to 3 have it.
- B is the largest trace norm in the hypothesis space; here it is that of the one classifier at hand.
- disc is a supremum over the hypothesis space (equation 2); here it is the distance of two centroids in feature space,
  after Figure 2. See `discrepancy`.
- The true mixture p is unknown; here p_k = n_k/n. With p̂_k = n_k/n too, disc(p̂, p) is 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedquilt.algorithm.parts import features as feature_parts

Numbers = Sequence[float] | npt.NDArray[Any] | Tensor
Matrix = Sequence[Sequence[float]] | npt.NDArray[Any] | Tensor


@dataclass(frozen=True)
class ExcessRisk:
    """G₁, G₂ and G₃ of Theorem 4, and what they are made of."""

    agnostic: float
    """G₁: the weights p̂ are not those of the true mixture."""
    approximation: float
    """G₂: what training on the pooled examples would cost too."""
    federated: float
    """G₃: every client sees its own distribution only."""
    mixture_discrepancy: float
    """disc(p̂, p), in G₁."""
    discrepancy: float
    """Σ p_k·disc(p_k, p), in G₃."""
    trace: float
    """B, the trace norm of the classifier."""
    feature_norms: tuple[float, ...]
    """‖φ(Xᵏ)‖_F of every client."""
    skew: float
    """S(p̂‖n̄), in G₁."""
    rademacher: float
    """The bound on the weighted Rademacher complexity, in G₁."""

    @property
    def total(self) -> float:
        """G₁ + G₂ + G₃."""
        return self.agnostic + self.approximation + self.federated


def weight_skew(weights: Numbers, sizes: Numbers) -> float:
    """Return S(p̂‖n̄) = χ²(p̂‖n̄) + 1 = Σ p̂_k²/(n_k/n): 1 where clients weigh as their examples do, else more (Theorem 1).

    >>> weight_skew([0.25, 0.75], sizes=[10, 30])
    1.0
    >>> round(weight_skew([0.5, 0.5], sizes=[10, 30]), 4)
    1.3333
    """
    count = _sizes(sizes)
    share = _weights(weights, len(count))
    return float((share.square() * count.sum() / count).sum())


def trace_norm(matrix: Matrix) -> float:
    """Return ‖W‖_*, the sum of a matrix's singular values; NaN where the matrix overflowed.

    >>> round(trace_norm(torch.diag(torch.tensor([3.0, -4.0]))), 6)
    7.0
    """
    values = _double(matrix)
    if not bool(values.isfinite().all()):  # the decomposition would raise
        return math.nan
    return float(feature_parts.trace_norm(values))


def weighted_rademacher(weights: Numbers, sizes: Numbers, norms: Numbers, trace: float, classes: int) -> float:
    """Return B√C·Σ (p̂_k/n_k)·‖φ(Xᵏ)‖_F, the bound on the weighted Rademacher complexity (Definition 1, equations 5-6).

    >>> weighted_rademacher([0.5, 0.5], sizes=[8, 16], norms=[4.0, 8.0], trace=3.0, classes=4)
    3.0
    """
    count = _sizes(sizes)
    share = _weights(weights, len(count))
    return trace * math.sqrt(classes) * float(share / count @ _double(norms))


def discrepancy(means: Matrix, weights: Numbers) -> float:
    """Return Σ p_k·‖m_k − m‖₂, the mean distance of the clients' centroids from that of their mixture, m = Σ p_k·m_k.

    This is our reading. Of Figure 2 the paper says that disc(p_k, p) "is calculated by the distance among the centroids
    of each group of points", and no more; §4.1 takes the same distance, as the maximum mean discrepancy of a linear
    kernel. The figure's points are projected to two dimensions first, so that its numbers differ from these.

    >>> discrepancy([[0.0, 0.0], [4.0, 0.0]], weights=[0.75, 0.25])
    1.5
    """
    centroids = _double(means)
    share = _weights(weights, len(centroids))
    return float(share @ torch.linalg.vector_norm(centroids - share @ centroids, dim=1))


def excess_risk(
    classifier: Matrix,
    norms: Numbers,
    means: Matrix,
    sizes: Numbers,
    weights: Numbers | None = None,
    delta: float = 0.05,
) -> ExcessRisk:
    """Compute the terms of Theorem 4 from what clients can report: norm and centroid of their features.

    classifier: W, features × classes, or classes × features as `torch.nn.Linear` has it.
    norms: ‖φ(Xᵏ)‖_F of every client; the root of the sum of their squares is ‖φ(X)‖_F.
    means: the clients' centroids, clients × features.
    weights: p̂, which sum to 1; by default n_k/n.
    delta: each of Theorems 1 to 3 fails with at most this probability.

    >>> risk = excess_risk(torch.eye(2), norms=[4.0, 4.0], means=[[0.0, 0.0], [2.0, 0.0]], sizes=[8, 8])
    >>> risk.trace, risk.skew, risk.mixture_discrepancy, risk.discrepancy
    (2.0, 1.0, 0.0, 1.0)
    >>> round(risk.agnostic, 3), round(risk.approximation, 3), round(risk.federated, 3)
    (1.754, 1.34, 2.894)
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta must be between 0 and 1, got {delta}")
    count, length, centroids = _sizes(sizes), _double(norms), _double(means)
    if centroids.ndim != 2 or not len(count) == len(length) == len(centroids):
        raise ValueError(
            f"every client needs a size, a norm and a centroid; got {len(count)} sizes, {len(length)} norms "
            f"and centroids of shape {tuple(centroids.shape)}"
        )
    true = count / count.sum()
    share = true if weights is None else _weights(weights, len(count))
    classes, trace = _classes(_double(classifier), centroids.shape[1]), trace_norm(classifier)
    mixture = float(torch.linalg.vector_norm((share - true) @ centroids))
    apart, skew = discrepancy(centroids, true), weight_skew(share, count)
    complexity = weighted_rademacher(share, count, length, trace, classes)
    doubt = math.log(2 / delta) / 2
    pooled = weighted_rademacher([1.0], [float(count.sum())], [float(torch.linalg.vector_norm(length))], trace, classes)
    local = weighted_rademacher(true, count, length, trace, classes)
    return ExcessRisk(
        agnostic=mixture + complexity + math.sqrt(skew * doubt / float(count.sum())),
        approximation=pooled + math.sqrt(doubt / float(count.sum())),
        federated=apart + local + float(true @ (doubt / count).sqrt()),
        mixture_discrepancy=mixture,
        discrepancy=apart,
        trace=trace,
        feature_norms=tuple(length.tolist()),
        skew=skew,
        rademacher=complexity,
    )


def _double(values: Numbers | Matrix) -> Tensor:
    if isinstance(values, np.ndarray):
        values = values.astype(np.float64)  # a copy: torch warns of arrays that cannot be written to
    return torch.as_tensor(values, dtype=torch.float64, device="cpu").detach()


def _sizes(sizes: Numbers) -> Tensor:
    count = _double(sizes)
    if not bool((count > 0).all()):
        raise ValueError(f"every client needs examples; leave out those without. Got sizes {count.tolist()}")
    return count


def _weights(weights: Numbers, clients: int) -> Tensor:
    share = _double(weights)
    if share.shape != (clients,):
        raise ValueError(f"every client needs a weight; got {share.numel()} weights for {clients} clients")
    if not (bool((share >= 0).all()) and math.isclose(float(share.sum()), 1, abs_tol=1e-4)):
        raise ValueError(f"weights must be 0 or more and sum to 1; they sum to {float(share.sum())}")
    return share


def _classes(classifier: Tensor, features: int) -> int:
    if classifier.ndim != 2 or features not in classifier.shape:
        raise ValueError(
            f"classifier must be features × classes or its transpose, with the centroids' {features} features; "
            f"got shape {tuple(classifier.shape)}"
        )
    rows, columns = classifier.shape
    return columns if rows == features else rows
