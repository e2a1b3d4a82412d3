"""Perplexity."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional

from fedquilt.algorithm.metric import Metric
from fedquilt.base.registry import metrics


@metrics.register
def perplexity() -> Metric:
    """The exponential of the mean cross-entropy: how many classes the model wavers between.

    >>> import torch
    >>> metric = perplexity()
    >>> round(metric.finished(metric.total(torch.zeros(3, 4), torch.tensor([0, 1, 3])) / 3), 4)
    4.0
    """
    return Metric("perplexity", _cross_entropy, _exponential, classes=1)


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


def _exponential(mean: float) -> float:
    try:
        return math.exp(mean)
    except OverflowError:
        return math.inf
