"""Metrics, registered by name: each is the mean over all predictions of a split, of which perplexity is the exponential."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional

from fedquilt.algorithm.metric import Metric
from fedquilt.base.registry import metrics


@metrics.register
def accuracy() -> Metric:
    """The share of predictions whose class of the largest score is the right one.

    >>> import torch
    >>> accuracy().total(torch.tensor([[0.1, 0.9], [0.8, 0.2]]), torch.tensor([1, 1]))
    1.0
    """
    return Metric("accuracy", _right, classes=1)


def _right(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.argmax(dim=-1) == targets


@metrics.register
def error() -> Metric:
    """The share of predictions whose class of the largest score is a wrong one: 1 − accuracy.

    >>> import torch
    >>> error().total(torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.7, 0.3]]), torch.tensor([1, 1, 1]))
    2.0
    """
    return Metric("error", _wrong, classes=1)


def _wrong(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.argmax(dim=-1) != targets


@metrics.register
def top5() -> Metric:
    """The share of predictions whose right class is among the five of the largest scores.

    >>> import torch
    >>> top5().total(torch.arange(6.0).expand(2, 6), torch.tensor([0, 1]))
    1.0
    """
    return Metric("top5", _among_five, classes=5)


def _among_five(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.topk(5, dim=-1).indices == targets.unsqueeze(-1)).any(dim=-1)


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
