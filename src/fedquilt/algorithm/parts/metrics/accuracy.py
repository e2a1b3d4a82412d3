"""Accuracy."""

from __future__ import annotations

from torch import Tensor

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
