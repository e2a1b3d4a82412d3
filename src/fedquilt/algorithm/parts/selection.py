"""Who takes part in a round."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedquilt.algorithm.algorithm import Select
from fedquilt.base.types import Indices


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


@dataclass(frozen=True)
class BySize:
    """As many clients as `fraction` says, each drawn with probability proportional to its size; none without examples.

    With replacement, a client may fill several slots of a round (Hsu 2020 runs 100 virtual clients on a split of 11).
    With `distinct`, none is drawn twice; inclusion is then no longer proportional to size.

    >>> BySize(1.0)(np.array([0, 0, 7]), np.random.default_rng(0)).tolist()
    [2, 2, 2]
    """

    fraction: float
    distinct: bool = False

    @property
    def repeats(self) -> bool:
        """Whether a client may be drawn several times in a round."""
        return not self.distinct

    def __call__(self, sizes: Indices, rng: np.random.Generator) -> Indices:
        """Draw the cohort."""
        count = cohort_size(self.fraction, len(sizes))
        if not sizes.any():
            return np.zeros(0, dtype=np.int64)
        if self.distinct:
            count = min(count, int(np.count_nonzero(sizes)))
            drawn = rng.choice(len(sizes), size=count, replace=False, p=sizes / sizes.sum())
            return drawn.astype(np.int64)
        # Which client holds a random example of the whole population.
        return np.searchsorted(np.cumsum(sizes), rng.integers(sizes.sum(), size=count), side="right").astype(np.int64)


@dataclass(frozen=True)
class AskMore:
    """(1 + `share`)·m clients, where the method needs m; never more than there are, unless it draws some twice.

    The method's own m come first, the same as without the others, who are drawn as it draws, from those who are left.

    >>> AskMore(0.5)(Uniform(0.5), np.full(8, 1), np.array([6, 1, 4, 3]), np.random.default_rng(0)).tolist()[:4]
    [6, 1, 4, 3]
    """

    share: float

    def __call__(self, select: Select, sizes: Indices, chosen: Indices, rng: np.random.Generator) -> Indices:
        """Return whom the method chose and, after them, those who are asked besides."""
        asked, count = chosen, cohort_size(1 + self.share, len(chosen))
        twice = isinstance(select, BySize) and not select.distinct
        while len(asked) < count:
            left = np.ones(len(sizes), dtype=bool)
            left[asked] = twice
            others = np.flatnonzero(left)
            more = others[select(sizes[others], rng)] if len(others) else others
            if not len(more):
                break
            asked = np.concatenate([asked, more[: count - len(asked)]])
        return asked
