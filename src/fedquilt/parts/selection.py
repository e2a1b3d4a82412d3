"""Who takes part in a round."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from fedquilt.core.algorithm import Indices, Select


def cohort_size(fraction: float, clients: int) -> int:
    """Return m = max(C·K, 1) of McMahan 2017, Algorithm 1, with C·K rounded to the nearest whole number, halves up.

    >>> [cohort_size(c, 100) for c in (0, 0.1, 0.29, 0.005, 1)]
    [1, 10, 29, 1, 100]
    """
    return max(math.floor(fraction * clients + 0.5 + 1e-9), 1)


def uniform(fraction: float) -> Select:
    """Draw a fraction C of the clients, every one equally likely, none twice."""
    return partial(_uniform, fraction)


def _uniform(fraction: float, sizes: Indices, rng: np.random.Generator) -> Indices:
    clients = len(sizes)
    return rng.choice(clients, size=cohort_size(fraction, clients), replace=False).astype(np.int64)
