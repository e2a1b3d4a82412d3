"""Losses, registered by name: each is a value for every prediction, of which a batch's loss is the weighted mean."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor
from torch.nn import functional

from fedquilt.algorithm.loss import Loss
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import losses
from fedquilt.compute.kernels.cross_entropy import mean_cross_entropy
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
    return Loss(_cross_entropies, _mean_cross_entropy)


def _cross_entropies(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor | None]:
    if targets.is_floating_point():
        raise SpecError('loss: cross_entropy is for classes, and these targets are numbers: use "mean_squared_error"')
    targets = targets.long()  # data sets may keep them in fewer bytes
    if targets.dim() == 1:
        return functional.cross_entropy(outputs, targets, reduction="none"), None
    flat = functional.cross_entropy(outputs.flatten(0, -2), targets.flatten(), reduction="none", ignore_index=IGNORED)
    return flat.view(targets.shape), (targets != IGNORED).to(flat.dtype)


def _mean_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    targets = targets.long()
    if targets.dim() == 1:
        return functional.cross_entropy(outputs, targets)
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten(), ignore_index=IGNORED)


def by_kernel(loss: Loss) -> Loss:
    """Return a loss whose mean over many classes is computed by a kernel: cross-entropy; any other stays as it is.

    >>> by_kernel(cross_entropy()) == cross_entropy(), by_kernel(mean_squared_error()) == mean_squared_error()
    (False, True)
    """
    return replace(loss, mean=_compiled_cross_entropy) if loss.mean is _mean_cross_entropy else loss


def _compiled_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    targets = targets.long()
    if targets.dim() == 1:
        return mean_cross_entropy(outputs, targets)
    return mean_cross_entropy(outputs.flatten(0, -2), targets.flatten(), IGNORED)


@losses.register
def mean_squared_error() -> Loss:
    """Mean squared error, for targets that are numbers: one per example, or several.

    With one, the model may return (N,) or (N, 1); with k, it returns (N, k), and an example's loss is the mean over them.

    >>> import torch
    >>> loss = mean_squared_error()
    >>> loss(torch.tensor([[1.0], [4.0]]), torch.tensor([1.0, 0.0]))
    tensor(8.)
    >>> loss.each(torch.zeros(1, 2), torch.tensor([[1.0, 3.0]]))
    (tensor([5.]), None)
    """
    return Loss(_squared, _mean_square)


def _squared(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor | None]:
    if not targets.is_floating_point():
        raise SpecError('loss: mean_squared_error is for numbers, and these targets are classes: use "cross_entropy"')
    squares = (_fitting(outputs, targets) - targets).square()
    return squares.flatten(1).mean(dim=1) if squares.dim() > 1 else squares, None


def _mean_square(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.mse_loss(_fitting(outputs, targets), targets)


def _fitting(outputs: Tensor, targets: Tensor) -> Tensor:
    outputs = outputs.squeeze(-1) if outputs.dim() == targets.dim() + 1 and outputs.shape[-1] == 1 else outputs
    if outputs.shape != targets.shape:
        raise ValueError(f"it returns {tuple(outputs.shape)} for targets of {tuple(targets.shape)}")
    return outputs
