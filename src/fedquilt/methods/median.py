"""The coordinate-wise median of the updates.

Yin, Chen, Kannan and Bartlett, Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates (2018),
Definition 1 and Algorithm 1 (Option I).
"""

from __future__ import annotations

from functools import partial

from fedquilt.algorithm.algorithm import Algorithm, claim
from fedquilt.algorithm.parts.held import Held
from fedquilt.algorithm.parts.robust import coordinate_median
from fedquilt.base.registry import wrappers


@wrappers.register
def median(algorithm: Algorithm) -> Algorithm:
    """Take the median of the updates in every coordinate (Yin 2018).

    Every client counts the same, whatever its number of examples. Of an even number of values it is the mean of the two
    in the middle. The server holds all of a round's updates at once.

    >>> from fedquilt import fed_avg
    >>> median(fed_avg()).applied.claims
    (('reduce', 'median'),)
    """
    return claim(algorithm, "median", reduce=partial(Held, coordinate_median))
