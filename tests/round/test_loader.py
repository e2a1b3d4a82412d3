"""Batches of several clients that are drawn at once are those that are drawn one by one."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import fedquilt
from fedquilt.algorithm.algorithm import Batches
from fedquilt.algorithm.context import ClientBlock, ClientData, Context
from fedquilt.algorithm.parts.sampling import Epochs, Resample, Steps
from fedquilt.base.schedule import Schedule
from fedquilt.partition.partition import Partition
from fedquilt.round.federation import Federation
from fedquilt.round.loader import BatchLoader, drawn_at_once


class FirstHalf(Epochs):
    """A way to sample of a user's own."""

    def __call__(self, examples, rng, round_=1):
        order, cuts = super().__call__(examples, rng, round_)
        return Batches(order[: cuts[1]], cuts[:2])


@dataclass(frozen=True)
class Inverted:
    """Draws permutations, and takes their inverses; that of an order that is not shuffled is the same."""

    def __call__(self, examples, rng, round_=1):
        return self.batches(examples, [rng.permutation(examples)], round_)

    def permutations(self, examples, round_=1):
        return 1

    def batches(self, examples, drawn, round_=1):
        return Batches(np.argsort(drawn[0]), np.array([0, examples]))


@pytest.mark.parametrize(
    "sample",
    [
        Inverted(),
        Epochs(1, 3),
        Epochs(3, 4),
        Epochs(3, 4, reshuffle=False),
        Epochs(2, float("inf")),
        Epochs(2, 4, drop_last=True),
        Epochs(2, 4, drop_last="single"),
        Epochs(Schedule(4, 0.9), Schedule(2, 1.2)),
        FirstHalf(1, 3),
        Steps(7, 3),
        Resample(6, 3),
    ],
)
def test_the_same_batches(sample, blobs, smooth):
    held = Partition.of([range(9), range(9, 11), range(11, 12), range(12, 29)])
    algorithm = replace(fedquilt.fed_avg(fraction=1.0), sample=sample)
    federation = Federation.of(smooth, blobs, held, algorithm, 1)
    contexts = [
        Context(federation.replica, federation.initial, seed=1, round=5, client=client, slot=slot)
        for slot, client in enumerate([3, 0, 2, 1])
    ]
    datas = [ClientData(blobs, blobs.train, held.client(context.client)) for context in contexts]
    block = ClientBlock.of(contexts, datas)
    together, at_once = BatchLoader.of_all(algorithm, block), drawn_at_once(algorithm, block)
    each = [BatchLoader.of(algorithm, context, data).batches for context, data in zip(contexts, datas, strict=True)]
    for batches, loader in zip(each, together, strict=True):
        assert np.array_equal(batches.order, loader.batches.order)
        assert np.array_equal(batches.cuts, loader.batches.cuts)
    plain = [Epochs(1, 3), Epochs(3, 4), Epochs(2, float("inf")), Epochs(Schedule(4, 0.9), Schedule(2, 1.2))]
    assert (at_once is not None) == (sample in plain)
    if at_once is not None:
        assert np.array_equal(at_once.order, np.concatenate([batches.order for batches in each]))
        assert np.array_equal(at_once.ends, np.concatenate([batches.cuts[1:] for batches in each]))
        assert at_once.steps.tolist() == [len(batches.cuts) - 1 for batches in each]
        assert at_once.counts.tolist() == [len(batches.order) for batches in each]
