"""Cross-entropy, for examples and sequences with classes."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from fedquilt.algorithm.loss import Loss
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import losses
from fedquilt.data.data import IGNORED


@losses.register
def cross_entropy() -> Loss:
    """Cross-entropy, −log softmax(outputs)[class]: the loss of every method unless another is chosen.

    It is for examples (N, C) or for every position of a sequence (N, T, C).

    >>> import torch
    >>> loss = cross_entropy()
    >>> loss(torch.zeros(2, 4), torch.tensor([0, 3]))
    tensor(1.3863)
    >>> loss.each(torch.zeros(1, 2, 4), torch.tensor([[1, -100]]))
    (tensor([[1.3863, 0.0000]]), tensor([[1., 0.]]))
    """
    return Loss(_each, _mean)


def _each(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor | None]:
    if targets.is_floating_point():
        raise SpecError('loss: cross_entropy is for classes, and these targets are numbers: use "mean_squared_error"')
    targets = targets.long()  # data sets may keep them in fewer bytes
    if targets.dim() == 1:
        return functional.cross_entropy(outputs, targets, reduction="none"), None
    flat = functional.cross_entropy(outputs.flatten(0, -2), targets.flatten(), reduction="none", ignore_index=IGNORED)
    return flat.view(targets.shape), (targets != IGNORED).to(flat.dtype)


def _mean(outputs: Tensor, targets: Tensor) -> Tensor:
    targets = targets.long()
    if targets.dim() == 1:
        return functional.cross_entropy(outputs, targets)
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten(), ignore_index=IGNORED)
