"""The coordinate-wise median of the updates.

Yin, Chen, Kannan and Bartlett, Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates (2018),
Definition 1 and Algorithm 1 (Option I).
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from fedquilt.algorithm.algorithm import Algorithm, claim
from fedquilt.algorithm.parts.reduction import Held, Updates, mean_of_ranks
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


def coordinate_median(updates: Updates) -> Tensor:
    """Return the median in every coordinate, unweighted; of an even number, the mean of the two middle values.

    >>> import torch
    >>> coordinate_median(Updates([torch.tensor([x, -x]) for x in (1.0, 2.0, 9.0)], [1.0, 1.0, 1.0]))
    tensor([ 2., -2.])
    """
    return mean_of_ranks(updates.deltas, (len(updates.deltas) - 1) // 2)
