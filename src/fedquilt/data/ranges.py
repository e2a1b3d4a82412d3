"""Features scaled to [−1, 1], by their range over the training part."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]


def to_range(x: Numbers, low: Numbers, high: Numbers) -> Numbers:
    """Scale features from [low, high] to [−1, 1]; those without a range become 0.

    >>> to_range(np.array([[0.0, 7.0], [3.0, 7.0]]), low=np.array([0.0, 7.0]), high=np.array([4.0, 7.0]))
    array([[-1. ,  0. ],
           [ 0.5,  0. ]])
    """
    width = high - low
    scaled = 2 * (x - low) / np.where(width > 0, width, 1) - 1
    return np.where(width > 0, scaled, 0)
