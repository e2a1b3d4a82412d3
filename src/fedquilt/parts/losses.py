"""Criteria: the loss of every prediction in a batch."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from fedquilt.core.loss import IGNORED


def cross_entropy(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return −log softmax(outputs)[target], for examples (N, C) or for every place of a sequence (N, T, C).

    >>> import torch
    >>> losses, counted = cross_entropy(torch.zeros(2, 4), torch.tensor([0, 3]))
    >>> losses, counted
    (tensor([1.3863, 1.3863]), None)
    """
    if targets.dim() == 1:
        return functional.cross_entropy(outputs, targets, reduction="none"), None
    flat = functional.cross_entropy(outputs.flatten(0, -2), targets.flatten(), reduction="none", ignore_index=IGNORED)
    return flat.view(targets.shape), (targets != IGNORED).to(flat.dtype)
