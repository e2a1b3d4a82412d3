"""A bound on the length of updates, kept by the server.

Sun, Kairouz, Suresh and McMahan, Can You Really Backdoor Federated Learning? (2019), "norm thresholding of updates":
Σ Δ_k / max(1, ‖Δ_k‖₂ / M).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from torch import Tensor

from fedquilt.algorithm.algorithm import Algorithm, claim
from fedquilt.algorithm.parts.directions import clip_by_norm
from fedquilt.algorithm.transform import At
from fedquilt.algorithm.updates import ClientUpdate, Cohort, Reduce
from fedquilt.base.arguments import PositiveOrInfinite
from fedquilt.base.registry import wrappers


@wrappers.register
def norm_bound(algorithm: Algorithm, limit: PositiveOrInfinite = 3.0) -> Algorithm:
    """Shorten long updates at the server, before they are averaged (Sun 2019).

    `limit` is the paper's M, the largest L2 norm over all parameters together; `inf` leaves the method as it is. What
    follows is the wrapped method's own reduction, so that this goes around a robust one (`norm_bound(median(…))`), and not
    within it.

    >>> from fedquilt import fed_avg
    >>> base = fed_avg()
    >>> norm_bound(base, limit=float("inf")) is base
    True
    """
    if limit == math.inf:
        return algorithm
    bounded = partial(Bounded, limit, algorithm.reduce)
    # The part is wrapped, not replaced: whoever claimed it before keeps it, and nobody may replace it afterwards.
    return claim(replace(algorithm, reduce=bounded), "norm_bound", reduce=bounded)


class Bounded:
    """Shortens every update that is longer than `limit`, then reduces as `reduce` does."""

    def __init__(self, limit: float, reduce: Reduce, cohort: Cohort) -> None:
        self._clip = clip_by_norm(limit)
        self._fold = reduce(cohort)

    def add(self, update: ClientUpdate) -> None:
        """Take in one update, shortened if need be."""
        shortened, _ = self._clip.update({"model": update.delta}, {}, At({}, {}))
        self._fold.add(replace(update, delta=shortened["model"]))

    def finish(self) -> Tensor | None:
        """Return what the wrapped fold returns."""
        return self._fold.finish()
