"""Mean squared error, for numerical targets."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from fedquilt.algorithm.loss import Loss
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import losses


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
