"""The error rate."""

from __future__ import annotations

from torch import Tensor

from fedquilt.algorithm.metric import Metric
from fedquilt.base.registry import metrics


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
