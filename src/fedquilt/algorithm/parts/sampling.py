"""Which examples a client trains on in a round, in which order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from fedquilt.algorithm.algorithm import Batches, Permuting
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
        return _drawn(self, examples, rng, round_)

    def permutations(self, examples: int, round_: int = 1) -> int:
        """Return how many permutations of a client's examples are drawn: one for each pass, or for all of them."""
        if self._size(examples, round_) >= examples:
            return 0
        return self._count(round_) if self.reshuffle else 1

    def batches(self, examples: int, drawn: Sequence[Indices], round_: int = 1) -> Batches:
        """Make a client's batches of its permutations."""
        count, size = self._count(round_), self._size(examples, round_)
        used = self._used(examples, size)
        cuts = _cuts(count, used, size)
        if not drawn:
            return Batches(np.tile(np.arange(examples, dtype=np.int64), count), cuts)
        if count == 1:
            return Batches(drawn[0][:used], cuts)
        return Batches(np.concatenate([each[:used] for each in drawn] * (count // len(drawn))), cuts)

    def a_pass(self, examples: int, round_: int = 1) -> int:
        """Return how many of a client's examples a pass trains on: all, but for a last batch that is left out."""
        return self._used(examples, self._size(examples, round_))

    def without_single(self) -> Epochs:
        """Return the same for a model that cannot learn from a single example.

        >>> Epochs(1, 2).without_single().drop_last, Epochs(1, 2, drop_last=False).without_single().drop_last
        ('single', False)
        """
        return replace(self, drop_last="single") if self.drop_last == "auto" else self

    def _count(self, round_: int) -> int:
        return self.count if isinstance(self.count, int) else whole(scheduled(self.count)(round_))

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


def _drawn(sample: Permuting, examples: int, rng: np.random.Generator, round_: int) -> Batches:
    drawn = [rng.permutation(examples) for _ in range(sample.permutations(examples, round_))]
    return sample.batches(examples, drawn, round_)


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
        return _drawn(self, examples, rng, round_)

    def permutations(self, examples: int, round_: int = 1) -> int:
        """Return how many passes over a client's examples are begun."""
        return math.ceil(self.count * self._size(examples) / max(examples, 1))

    def batches(self, examples: int, drawn: Sequence[Indices], round_: int = 1) -> Batches:
        """Make a client's batches of its permutations."""
        size = self._size(examples)
        return Batches(np.concatenate(drawn)[: self.count * size], np.arange(self.count + 1, dtype=np.int64) * size)

    def _size(self, examples: int) -> int:
        return int(min(self.batch, examples))


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
