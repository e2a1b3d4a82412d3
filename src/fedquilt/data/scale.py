"""Bytes to numbers that a model takes."""

from __future__ import annotations

from torch import Tensor


def to_unit(raw: Tensor) -> Tensor:
    """Scale bytes to [0, 1].

    >>> import torch
    >>> to_unit(torch.tensor([0, 51, 255], dtype=torch.uint8))
    tensor([0.0000, 0.2000, 1.0000])
    """
    return raw.float().div_(255)


def standardise(raw: Tensor, mean: float | Tensor, std: float | Tensor) -> Tensor:
    """Subtract a mean from bytes and divide by a standard deviation, both on the scale of 0 to 255.

    >>> import torch
    >>> standardise(torch.tensor([0, 100], dtype=torch.uint8), mean=50.0, std=25.0)
    tensor([-2.,  2.])
    """
    return raw.float().sub_(mean).div_(std)
