"""Sizes of clients: as even as possible, in given proportions, or by a power law."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedquilt.base.errors import SpecError
from fedquilt.base.types import Indices


def even_sizes(total: int, parts: int) -> Indices:
    """Divide a total into whole parts that differ by at most one, the larger ones first.

    >>> even_sizes(11, 4).tolist()
    [3, 3, 3, 2]
    """
    sizes = np.full(parts, total // parts, dtype=np.int64)
    sizes[: total % parts] += 1
    return sizes


def sizes_by(shares: npt.NDArray[np.float64], total: int, least: int) -> Indices:
    """Divide a total by shares that sum to 1, after everybody has got `least`; largest remainders are rounded up.

    >>> sizes_by(np.array([0.7, 0.2, 0.1]), total=10, least=1).tolist()
    [6, 2, 2]
    """
    free = total - least * len(shares)
    if free < 0:
        raise SpecError(
            f"least: {len(shares)} clients × {least} = {least * len(shares)}, but there are {total} examples; "
            f"at most {total // len(shares)} per client"
        )
    quota = shares * free
    sizes = np.floor(quota).astype(np.int64)
    up = np.argsort(sizes - quota, kind="stable")[: free - int(sizes.sum())]
    sizes[up] += 1
    return sizes + least


def power_law_sizes(total: int, parts: int, exponent: float, least: int = 1) -> Indices:
    """Divide a total so that the k-th largest part is proportional to k^−exponent, the largest first.

    >>> power_law_sizes(110, 4, exponent=1.0, least=10).tolist()
    [44, 27, 21, 18]
    """
    ranks = np.arange(1, parts + 1, dtype=np.float64) ** -exponent
    return sizes_by(ranks / ranks.sum(), total, least)
