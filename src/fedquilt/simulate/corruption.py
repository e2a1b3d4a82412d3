"""Clients that do not do what they are asked, in simulation: a fixed share of the population, drawn with the run's seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from torch import Tensor

from fedquilt.base.rng import generator

Tamper = Callable[[Tensor, np.random.Generator], Tensor]
"""(a client's update, generator) -> what it sends instead."""


@dataclass(frozen=True)
class Corruption:
    """What corrupt clients do to their labels before training, or to their update before sending it."""

    share: float
    labels: Callable[[Tensor, int], Tensor] | None = None
    update: Tamper | None = None

    def hits(self, client: int, population: int, seed: int) -> bool:
        """Say whether a client is corrupt."""
        return client in corrupt_clients(self.share, population, seed)


@lru_cache(maxsize=16)
def corrupt_clients(share: float, population: int, seed: int) -> frozenset[int]:
    """Return the corrupt clients: `share` of all, rounded.

    >>> len(corrupt_clients(0.2, 10, seed=1)), corrupt_clients(0.2, 10, 1) <= corrupt_clients(0.4, 10, 1)
    (2, True)
    """
    order = generator(seed, "corrupt").permutation(population)
    return frozenset(order[: round(share * population)].tolist())
