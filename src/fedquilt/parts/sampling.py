"""Which examples a client trains on in a round, in which order."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from fedquilt.core.algorithm import Batches, Sample


def epochs(count: int, batch: float, reshuffle: bool = True) -> Sample:
    """Return E passes over the client's data in batches of B, the last of a pass smaller if B does not divide n.

    McMahan 2017's Algorithm 1 splits the data into batches once and passes over the same batches E times
    (`reshuffle=False`); shuffling anew for every pass is what training code commonly does, and the default. With
    B = ∞ the order does not matter and nothing is drawn.

    >>> sample = epochs(1, batch=2)
    >>> order, cuts = sample(5, np.random.default_rng(0))
    >>> sorted(order.tolist()), cuts.tolist()
    ([0, 1, 2, 3, 4], [0, 2, 4, 5])
    """
    return partial(_epochs, count, batch, reshuffle)


def _epochs(count: int, batch: float, reshuffle: bool, examples: int, rng: np.random.Generator) -> Batches:
    whole = batch >= examples
    size = examples if whole else int(batch)
    starts = np.arange(0, examples, size, dtype=np.int64)
    cuts = np.append((np.arange(count)[:, None] * examples + starts).ravel(), count * examples)
    if whole:
        return Batches(np.tile(np.arange(examples, dtype=np.int64), count), cuts)
    if reshuffle:
        passes = [rng.permutation(examples) for _ in range(count)]
    else:
        passes = [rng.permutation(examples)] * count
    return Batches(np.concatenate(passes), cuts)


def steps(count: int, batch: float) -> Sample:
    """Return S batches of B, drawn without replacement; starts a new pass when the data are used up.

    >>> order, cuts = steps(3, batch=2)(4, np.random.default_rng(0))
    >>> len(order), cuts.tolist()
    (6, [0, 2, 4, 6])
    """
    return partial(_steps, count, batch)


def _steps(count: int, batch: float, examples: int, rng: np.random.Generator) -> Batches:
    size = int(min(batch, examples))
    passes = math.ceil(count * size / examples)
    order = np.concatenate([rng.permutation(examples) for _ in range(passes)])[: count * size]
    return Batches(order, np.arange(count + 1, dtype=np.int64) * size)
