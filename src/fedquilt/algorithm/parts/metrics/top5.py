"""Top-5 accuracy."""

from __future__ import annotations

from torch import Tensor

from fedquilt.algorithm.metric import Metric
from fedquilt.base.registry import metrics


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
