"""What a corrupt client makes of its update, or of its labels.

McMahan 2017, §1, names clients that "send corrupted updates" among what its experiments leave out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedquilt.data.data import IGNORED


def send_nan(delta: Tensor, rng: np.random.Generator) -> Tensor:
    """Send NaN only.

    >>> send_nan(torch.ones(2), np.random.default_rng(0))
    tensor([nan, nan])
    """
    return torch.full_like(delta, torch.nan)


@dataclass(frozen=True)
class FlipSign:
    """Send −strength·Δ.

    >>> FlipSign(2.0)(torch.tensor([1.0, -3.0]), np.random.default_rng(0))
    tensor([-2.,  6.])
    """

    strength: float

    def __call__(self, delta: Tensor, rng: np.random.Generator) -> Tensor:
        """Turn the update round."""
        return delta * -self.strength


@dataclass(frozen=True)
class AddNormal:
    """Send Δ + strength·N(0, 1), drawn for every coordinate.

    >>> AddNormal(0.5)(torch.zeros(3), np.random.default_rng(0))
    tensor([ 0.5588,  -0.6936, -0.2133])
    """

    strength: float

    def __call__(self, delta: Tensor, rng: np.random.Generator) -> Tensor:
        """Add the noise."""
        return delta + self.strength * torch.from_numpy(rng.standard_normal(delta.shape, dtype=np.float32))


def flip_labels(labels: Tensor, classes: int) -> Tensor:
    """Return classes − 1 − y for every label y; places that do not count stay as they are.

    >>> flip_labels(torch.tensor([0, 3, -100, 9]), 10)
    tensor([   9,    6, -100,    0])
    """
    return torch.where(labels == IGNORED, labels, classes - 1 - labels)
