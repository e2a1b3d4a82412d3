"""Scales numbers for a model: bytes to [0, 1] or to mean 0, and features to [−1, 1]."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from torch import Tensor

Numbers = npt.NDArray[np.float64]


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


def to_range(x: Numbers, low: Numbers, high: Numbers) -> Numbers:
    """Scale features from [low, high] to [−1, 1]; those without a range become 0.

    >>> to_range(np.array([[0.0, 7.0], [3.0, 7.0]]), low=np.array([0.0, 7.0]), high=np.array([4.0, 7.0]))
    array([[-1. ,  0. ],
           [ 0.5,  0. ]])
    """
    width = high - low
    scaled = 2 * (x - low) / np.where(width > 0, width, 1) - 1
    return np.where(width > 0, scaled, 0)
