"""Who takes part in a round."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedquilt.algorithm.algorithm import Select
from fedquilt.base.errors import FedquiltError, SpecError
from fedquilt.base.types import Indices

FRACTION = 0.1
"""C, where neither it nor the number of clients is given."""


def cohort_size(fraction: float, clients: int) -> int:
    """Return m = max(C·K, 1) of McMahan 2017, Algorithm 1, with C·K rounded to the nearest whole number, halves up.

    >>> [cohort_size(c, 100) for c in (0, 0.1, 0.29, 0.005, 1)]
    [1, 10, 29, 1, 100]
    """
    return max(math.floor(fraction * clients + 0.5 + 1e-9), 1)


@dataclass(frozen=True)
class Uniform:
    """A fraction C of the clients, or `cohort` of them; every one equally likely, none twice.

    Where fewer than `cohort` can be asked, as in a small cluster of clients, all of them are.

    >>> sorted(Uniform(1.0)(np.array([5, 9, 2]), np.random.default_rng(0)).tolist())
    [0, 1, 2]
    >>> len(Uniform(cohort=2)(np.array([5, 9, 2]), np.random.default_rng(0)))
    2
    """

    fraction: float = FRACTION
    cohort: int | None = None

    def __call__(self, sizes: Indices, rng: np.random.Generator) -> Indices:
        """Draw the cohort."""
        clients = len(sizes)
        count = cohort_size(self.fraction, clients) if self.cohort is None else min(self.cohort, clients)
        return rng.choice(clients, size=count, replace=False).astype(np.int64)


def uniform(fraction: float | None, cohort: int | None) -> Uniform:
    """Choose clients uniformly: a fraction of them, or that many; a tenth of them if neither is given."""
    if fraction is not None and cohort is not None:
        raise SpecError(
            f"fraction = {fraction:g} and cohort = {cohort} both say how many clients take part in a round: give one of "
            "them"
        )
    return Uniform(FRACTION if fraction is None else fraction, cohort)


def require_enough_clients(select: Select, clients: int) -> None:
    """Refuse a cohort that is larger than the population, unless a client may be drawn several times.

    >>> require_enough_clients(Uniform(cohort=100), 11)
    Traceback (most recent call last):
    fedquilt.base.errors.FedquiltError: cohort = 100, but there are only 11 clients, and none is drawn twice in a round:
    use a smaller cohort (the wrapper fed_vc may draw a client several times)
    >>> require_enough_clients(BySize(cohort=100), 11)
    """
    cohort = select.cohort if isinstance(select, Uniform | BySize) else None
    twice = isinstance(select, BySize) and select.repeats
    if cohort is not None and cohort > clients and not twice:
        raise FedquiltError(
            f"cohort = {cohort}, but there are only {clients} clients, and none is drawn twice in a round: use a smaller "
            "cohort (the wrapper fed_vc may draw a client several times)"
        )


@dataclass(frozen=True)
class BySize:
    """A fraction C of the clients, or `cohort` of them, each drawn with probability ∝ its size; none without examples.

    With replacement, a client may fill several slots of a round (Hsu 2020 runs 100 virtual clients on a split of 11).
    With `distinct`, none is drawn twice; inclusion is then no longer proportional to size.

    >>> BySize(1.0)(np.array([0, 0, 7]), np.random.default_rng(0)).tolist()
    [2, 2, 2]
    >>> len(BySize(cohort=100)(np.full(11, 30), np.random.default_rng(0)))
    100
    """

    fraction: float = FRACTION
    distinct: bool = False
    cohort: int | None = None

    @property
    def repeats(self) -> bool:
        """Whether a client may be drawn several times in a round."""
        return not self.distinct

    def __call__(self, sizes: Indices, rng: np.random.Generator) -> Indices:
        """Draw the cohort."""
        count = cohort_size(self.fraction, len(sizes)) if self.cohort is None else self.cohort
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
