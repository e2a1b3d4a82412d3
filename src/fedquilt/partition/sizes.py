"""Sizes that are as even as possible."""

from __future__ import annotations

import numpy as np

from fedquilt.partition.partition import Indices


def even_sizes(total: int, parts: int) -> Indices:
    """Divide a total into whole parts that differ by at most one, the larger ones first.

    >>> even_sizes(11, 4).tolist()
    [3, 3, 3, 2]
    """
    sizes = np.full(parts, total // parts, dtype=np.int64)
    sizes[: total % parts] += 1
    return sizes
