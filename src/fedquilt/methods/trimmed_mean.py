"""The coordinate-wise trimmed mean of the updates.

Yin, Chen, Kannan and Bartlett, Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates (2018),
Definition 2 and Algorithm 1 (Option II).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedquilt.algorithm.algorithm import Algorithm, claim
from fedquilt.algorithm.parts.reduction import Held, Updates, mean_of_ranks
from fedquilt.base.registry import wrappers

BelowHalf = Annotated[float, Field(ge=0, lt=0.5)]


@wrappers.register
def trimmed_mean(algorithm: Algorithm, trim: BelowHalf = 0.1) -> Algorithm:
    """Average the updates without the largest and smallest values of every coordinate (Yin 2018).

    `trim` is the paper's β: of m values ⌊trim·m⌋ are dropped at either end, and the rest averaged, every client counting
    the same. It should be at least the share of corrupt clients; with few clients nothing is dropped (⌊0.1·9⌋ = 0). A
    `trim` of zero leaves the method as it is, weights by examples included. The server holds all of a round's updates at
    once.

    >>> from fedquilt import fed_avg
    >>> base = fed_avg()
    >>> trimmed_mean(base, trim=0.0) is base
    True
    """
    if not trim:
        return algorithm
    return claim(algorithm, "trimmed_mean", reduce=partial(Held, partial(coordinate_trimmed_mean, trim)))


def coordinate_trimmed_mean(trim: float, updates: Updates) -> Tensor:
    """Return the mean, in every coordinate, without the ⌊trim·m⌋ smallest and as many largest values; unweighted.

    >>> import torch
    >>> coordinate_trimmed_mean(0.25, Updates([torch.tensor([x]) for x in (1.0, 2.0, 4.0, 99.0)], [1.0] * 4))
    tensor([3.])
    """
    return mean_of_ranks(updates.deltas, trimmed(trim, len(updates.deltas)))


def trimmed(trim: float, clients: int) -> int:
    """Return how many values are dropped at either end: ⌊trim·m⌋, and 29 of 100 for 0.29, whose product is 28.99….

    >>> trimmed(0.29, 100), trimmed(0.1, 9), trimmed(0.49, 2)
    (29, 0, 0)
    """
    return math.floor(trim * clients + 1e-9)
