"""Which examples a client trains on in a round, in which order."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from fedquilt.algorithm.algorithm import Batches
from fedquilt.base.schedule import Value, scheduled, whole
from fedquilt.base.types import Indices

DropLast = bool | Literal["auto"]
"""Whether the last batch of a pass is left out where it is smaller than the others; see `Epochs`."""


@dataclass(frozen=True)
class Epochs:
    """E passes over the client's data in batches of B, the last of a pass smaller if B does not divide n.

    McMahan 2017's Algorithm 1 splits the data into batches once and passes over the same batches E times
    (`reshuffle=False`); shuffling anew for every pass is what training code commonly does, and the default. With
    B = ∞ the order does not matter and nothing is drawn. E and B may change over rounds; they are rounded.

    `drop_last` leaves the smaller last batch of a pass out, but never the only one. "single" leaves it out where it is a
    single example, of which a model with batch normalisation may not be able to learn; "auto" is "single" where the model
    is such a one, and else False.

    >>> order, cuts = Epochs(1, batch=2)(5, np.random.default_rng(0))
    >>> sorted(order.tolist()), cuts.tolist()
    ([0, 1, 2, 3, 4], [0, 2, 4, 5])
    >>> Epochs(1, batch=2, drop_last=True)(5, np.random.default_rng(0)).cuts.tolist()
    [0, 2, 4]
    """

    count: Value
    batch: Value
    reshuffle: bool = True
    drop_last: DropLast | Literal["single"] = "auto"

    def __call__(self, examples: int, rng: np.random.Generator, round_: int = 1) -> Batches:
        """Draw the batches of a client with that many examples."""
        count = self.count if isinstance(self.count, int) else whole(scheduled(self.count)(round_))
        size = self._size(examples, round_)
        used = self._used(examples, size)
        cuts = _cuts(count, used, size)
        if size >= examples:
            return Batches(np.tile(np.arange(examples, dtype=np.int64), count), cuts)
        if count == 1:
            return Batches(rng.permutation(examples)[:used], cuts)
        draws = count if self.reshuffle else 1
        passes = [rng.permutation(examples)[:used] for _ in range(draws)]
        return Batches(np.concatenate(passes * (count // draws)), cuts)

    def a_pass(self, examples: int, round_: int = 1) -> int:
        """Return how many of a client's examples a pass trains on: all, but for a last batch that is left out."""
        return self._used(examples, self._size(examples, round_))

    def without_single(self) -> Epochs:
        """Return the same for a model that cannot learn from a single example.

        >>> Epochs(1, 2).without_single().drop_last, Epochs(1, 2, drop_last=False).without_single().drop_last
        ('single', False)
        """
        return replace(self, drop_last="single") if self.drop_last == "auto" else self

    def _used(self, examples: int, size: int) -> int:
        last = examples % max(size, 1)
        left_out = self.drop_last is True or (self.drop_last == "single" and last == 1)
        return examples - last if left_out else examples

    def _size(self, examples: int, round_: int) -> int:
        if isinstance(self.batch, int):
            return min(max(self.batch, 1), examples)
        batch = self.batch if isinstance(self.batch, float) else scheduled(self.batch)(round_)
        return examples if batch >= examples else whole(batch)


def leaves_out_single(sample: object) -> bool:
    """Say whether last batches of one example are left out, because the model cannot learn from one.

    >>> leaves_out_single(Epochs(1, 2).without_single()), leaves_out_single(Epochs(1, 2))
    (True, False)
    """
    return isinstance(sample, Epochs) and sample.drop_last == "single"


@lru_cache(maxsize=1024)
def _cuts(count: int, examples: int, size: int) -> Indices:
    """Return where batches begin and end in some passes; kept, because clients of a size share them."""
    starts = np.arange(0, examples, max(size, 1), dtype=np.int64)
    cuts = np.append((np.arange(count)[:, None] * examples + starts).ravel(), count * examples)
    cuts.flags.writeable = False
    return cuts


@dataclass(frozen=True)
class Steps:
    """S batches of B, drawn without replacement; a new pass begins when the data are used up.

    >>> order, cuts = Steps(3, batch=2)(4, np.random.default_rng(0))
    >>> len(order), cuts.tolist()
    (6, [0, 2, 4, 6])
    """

    count: int
    batch: float

    def __call__(self, examples: int, rng: np.random.Generator, round_: int = 1) -> Batches:
        """Draw the batches of a client with that many examples."""
        size = int(min(self.batch, examples))
        passes = math.ceil(self.count * size / max(examples, 1))
        order = np.concatenate([rng.permutation(examples) for _ in range(passes)])[: self.count * size]
        return Batches(order, np.arange(self.count + 1, dtype=np.int64) * size)


@dataclass(frozen=True)
class Resample:
    """Exactly `size` examples in batches of B: without replacement where the client has as many, else with.

    >>> order, cuts = Resample(4, batch=2)(3, np.random.default_rng(0))
    >>> len(order), cuts.tolist()
    (4, [0, 2, 4])
    """

    size: int
    batch: int

    def __call__(self, examples: int, rng: np.random.Generator, round_: int = 1) -> Batches:
        """Draw the batches of a client with that many examples."""
        if examples >= self.size:
            order = rng.permutation(examples)[: self.size]
        else:
            order = rng.integers(examples, size=self.size)
        return Batches(order, np.arange(0, self.size + 1, self.batch, dtype=np.int64))
