"""Clients that send corrupted updates: McMahan et al., Communication-Efficient Learning of Deep Networks … (2017).

§1 names them among the issues of a deployed system. A method that is meant to bear them can be tried on them here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedquilt.base.arguments import BelowOne, Positive
from fedquilt.base.registry import simulations
from fedquilt.data.data import IGNORED
from fedquilt.simulate.simulation import NOTHING, Corruption, Simulation

CorruptionKind = Literal["nan", "sign_flip", "noise", "label_flip"]


@simulations.register
def corrupt(share: BelowOne = 0.1, kind: CorruptionKind = "sign_flip", strength: Positive = 1.0) -> Simulation:
    """Let a fixed share of all clients send corrupted updates, or learn wrong labels (McMahan 2017).

    `share`·K of the clients, rounded, are corrupt, the same ones for the whole run. With Δ the update that they would send:

    - "nan": they send NaN, and are left out and named as any client that does;
    - "sign_flip": they send −`strength`·Δ;
    - "noise": they send Δ + `strength`·N(0, 1), drawn for every coordinate;
    - "label_flip": they train on the labels classes − 1 − y, and send what they learnt. Every example must have
      one class label.

    `strength` is used by "sign_flip" and "noise" only. The update alone is corrupted, after clipping and the like, not a
    method's extra upload. Several may be stacked; they hit nested sets of clients, since the order in which clients turn
    corrupt is the run's: with shares of 0.1 and 0.3, the clients of the first are hit by both. A `share` of 0
    simulates nothing.

    >>> corrupt(share=0.2, strength=3.0).corruption[0].update
    FlipSign(strength=3.0)
    """
    if not share:
        return NOTHING
    kinds = {
        "nan": Corruption(share, update=send_nan),
        "sign_flip": Corruption(share, update=FlipSign(strength)),
        "noise": Corruption(share, update=AddNormal(strength)),
        "label_flip": Corruption(share, labels=flip_labels),
    }
    return Simulation("corrupt", corruption=(kinds[kind],))


def send_nan(delta: Tensor, rng: np.random.Generator) -> Tensor:
    """Send NaN only."""
    return torch.full_like(delta, torch.nan)


@dataclass(frozen=True)
class FlipSign:
    """Send −strength·Δ."""

    strength: float

    def __call__(self, delta: Tensor, rng: np.random.Generator) -> Tensor:
        """Turn the update round."""
        return delta * -self.strength


@dataclass(frozen=True)
class AddNormal:
    """Send Δ + strength·N(0, 1), drawn for every coordinate."""

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
