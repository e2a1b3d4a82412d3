"""Who takes part in a round."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedquilt.core.algorithm import Indices


def cohort_size(fraction: float, clients: int) -> int:
    """Return m = max(C·K, 1) of McMahan 2017, Algorithm 1, with C·K rounded to the nearest whole number, halves up.

    >>> [cohort_size(c, 100) for c in (0, 0.1, 0.29, 0.005, 1)]
    [1, 10, 29, 1, 100]
    """
    return max(math.floor(fraction * clients + 0.5 + 1e-9), 1)


@dataclass(frozen=True)
class Uniform:
    """A fraction C of the clients, every one equally likely, none twice.

    >>> sorted(Uniform(1.0)(np.array([5, 9, 2]), np.random.default_rng(0)).tolist())
    [0, 1, 2]
    """

    fraction: float

    def __call__(self, sizes: Indices, rng: np.random.Generator) -> Indices:
        """Draw the cohort."""
        clients = len(sizes)
        return rng.choice(clients, size=cohort_size(self.fraction, clients), replace=False).astype(np.int64)
