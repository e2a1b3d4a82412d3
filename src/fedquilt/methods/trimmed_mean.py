"""The coordinate-wise trimmed mean of the updates.

Yin, Chen, Kannan and Bartlett, Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates (2018),
Definition 2 and Algorithm 1 (Option II).
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pydantic import Field

from fedquilt.algorithm.algorithm import Algorithm, claim
from fedquilt.algorithm.parts.held import Held
from fedquilt.algorithm.parts.robust import coordinate_trimmed_mean
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
