"""The batch loader: a client's batches, made ready for the model, and the weights of their examples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

import numpy as np
import torch
from torch import Tensor

from fedquilt.algorithm.algorithm import Algorithm, Batches, Permuting, Sample, Shortened
from fedquilt.algorithm.context import ClientBlock, ClientData, Context
from fedquilt.algorithm.parts.sampling import Epochs
from fedquilt.base.rng import brief_generator, generator
from fedquilt.base.types import Indices
from fedquilt.compute.kernels.permutations import permutations
from fedquilt.round.local_step import Batch
from fedquilt.round.prefetch import made_ahead

GATHERED = 4096
"""Examples made ready at a time: a bound on memory, fixed, because augmentation draws follow it."""


@dataclass(frozen=True, eq=False)
class BatchLoader:
    """A client's batches of a round, the weight of an example of each class, and how labels are corrupted, if they are."""

    data: ClientData
    batches: Batches
    weights: Tensor | None
    context: Context
    sample: Sample
    purpose: str

    @classmethod
    def of(cls, algorithm: Algorithm, context: Context, data: ClientData, purpose: str = "") -> BatchLoader:
        """Draw a client's batches."""
        rng = brief_generator(context.seed, f"{purpose}sample", *context.key)
        batches = algorithm.sample(len(data), rng, context.round)
        return cls(data, batches, _importance(algorithm, context, data), context, algorithm.sample, purpose)

    @classmethod
    def of_all(cls, algorithm: Algorithm, block: ClientBlock) -> list[BatchLoader]:
        """Draw the batches of several clients of a round: the same ones, in less time than one after the other."""
        sample, round_ = algorithm.sample, block.first.round
        clients = list(zip(block.contexts, block.datas, strict=True))
        if not only_permutes(sample):
            return [cls.of(algorithm, *client) for client in clients]
        draws, drawn = _drawn(sample, block)
        loaders, last = [], 0
        for (context, data), size, count in zip(clients, block.sizes, draws, strict=True):
            first, last = last, last + size * count
            batches = sample.batches(size, [drawn[i : i + size] for i in range(first, last, max(size, 1))], round_)
            loaders.append(cls(data, batches, _importance(algorithm, context, data), context, algorithm.sample, ""))
        return loaders

    @property
    def a_pass(self) -> int:
        """How many examples a pass over the data has."""
        examples = len(self.data)
        return self.sample.a_pass(examples, self.context.round) if isinstance(self.sample, Shortened) else examples

    def __iter__(self) -> Iterator[Batch]:
        """Make batches ready for the model, ahead of training where the data set asks for it."""
        ahead = self.data.data.ahead
        return made_ahead(self._made(), ahead) if ahead else self._made()

    def _made(self) -> Iterator[Batch]:
        """Make batches ready, several at a time: one gather serves many small batches. Ahead, they come one by one."""
        at_once = 0 if self.data.data.ahead else self.data.data.at_once or GATHERED
        order, cuts = self.batches
        key = (self.context.seed, f"{self.purpose}augment", *self.context.key)
        rng = generator(*key) if self.data.data.augment is not None else None
        first = 0
        while first < len(cuts) - 1:
            last = max(int(np.searchsorted(cuts, cuts[first] + at_once, side="right")) - 1, first + 1)
            x, y = self._ready(order[cuts[first] : cuts[last]], rng)
            sizes = np.diff(cuts[first : last + 1]).tolist()
            made = [x, y] if self.weights is None else [x, y, self.weights[y]]
            yield from map(Batch, *(torch.split(part, sizes) for part in self.context.replica.placement.put(made)))
            first = last

    def _ready(self, order: Indices, rng: np.random.Generator | None) -> tuple[Tensor, Tensor]:
        data = self.data.data
        x, y = data.batch(self.data.split, torch.from_numpy(self.data.rows[order]), rng)
        return x, y if self.data.relabel is None else self.data.relabel(y, data.classes)


def only_permutes(sample: Sample) -> TypeGuard[Permuting]:
    """Say whether batches are made of permutations alone; a subclass may draw otherwise."""
    return isinstance(sample, Permuting) and "permutations" in vars(type(sample))


def _drawn(sample: Permuting, block: ClientBlock) -> tuple[list[int], Indices]:
    """Draw the permutations of a block's clients: how many each has, and all of them in a row."""
    first = block.first
    draws_of = {size: sample.permutations(size, first.round) for size in set(block.sizes)}
    draws = [draws_of[size] for size in block.sizes]
    return draws, permutations(first.seed, "sample", first.round, block.clients, block.slots, block.sizes, draws)


class BlockBatches(NamedTuple):
    """Batches of several clients: which of its own examples each client takes, one client after the other.

    `ends` are where every batch ends among those of its client, `steps` how many batches each client has, and `counts` how
    many examples, each as often as it is taken.
    """

    order: Indices
    ends: Indices
    steps: Indices
    counts: Indices


def drawn_at_once(algorithm: Algorithm, block: ClientBlock) -> BlockBatches | None:
    """Draw the batches of a block's clients as a few arrays, where they are permutations in a row, or nothing is drawn.

    They are those of `BatchLoader.of_all`, without an object for every client. Only `Epochs` is known to take permutations
    as they are, if it takes all of one.
    """
    sample, round_ = algorithm.sample, block.first.round
    if block.corrupt or algorithm.importance is not None or type(sample) is not Epochs:
        return None
    batches_of: dict[int, Batches] = {}
    for size in set(block.sizes):
        in_turn = [np.arange(size, dtype=np.int64)] * sample.permutations(size, round_)
        batches_of[size] = sample.batches(size, in_turn, round_)
        if in_turn and not np.array_equal(batches_of[size].order, np.concatenate(in_turn)):
            return None
    draws, order = _drawn(sample, block)
    if not all(draws):
        last = np.cumsum(np.asarray(block.sizes) * draws).tolist()
        parts = zip(block.sizes, draws, [0, *last[:-1]], last, strict=True)
        order = np.concatenate(
            [order[first:end] if count else batches_of[size].order for size, count, first, end in parts]
        )
    cuts = [batches_of[size].cuts for size in block.sizes]
    steps = np.asarray([len(each) - 1 for each in cuts], dtype=np.int64)
    counts = np.asarray([len(batches_of[size].order) for size in block.sizes], dtype=np.int64)
    return BlockBatches(order, np.concatenate([each[1:] for each in cuts]), steps, counts)


def _importance(algorithm: Algorithm, context: Context, data: ClientData) -> Tensor | None:
    if algorithm.importance is None:
        return None
    labels = data.split.y.index_select(0, torch.from_numpy(data.rows))
    if data.relabel is not None:
        labels = data.relabel(labels, data.data.classes)
    return algorithm.importance(labels, data.data.classes, context.broadcast)
