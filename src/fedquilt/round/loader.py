"""The batch loader: a client's batches, made ready for the model, and the weights of their examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedquilt.algorithm.algorithm import Algorithm, Batches, Permuting, Sample, Shortened
from fedquilt.algorithm.context import ClientData, Context
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
    def of_all(
        cls, algorithm: Algorithm, contexts: Sequence[Context], datas: Sequence[ClientData]
    ) -> list[BatchLoader]:
        """Draw the batches of several clients of a round: the same ones, in less time than one after the other."""
        sample, one, clients = algorithm.sample, contexts[0], list(zip(contexts, datas, strict=True))
        if not isinstance(sample, Permuting) or "permutations" not in vars(
            type(sample)
        ):  # a subclass may draw otherwise
            return [cls.of(algorithm, *client) for client in clients]
        sizes = [len(data) for data in datas]
        draws_of = {size: sample.permutations(size, one.round) for size in set(sizes)}
        draws = [draws_of[size] for size in sizes]
        keys = [(context.client, context.slot) for context in contexts]
        drawn = permutations(one.seed, "sample", one.round, keys, sizes, draws)
        loaders, last = [], 0
        for (context, data), size, count in zip(clients, sizes, draws, strict=True):
            first, last = last, last + size * count
            batches = sample.batches(size, [drawn[i : i + size] for i in range(first, last, max(size, 1))], one.round)
            loaders.append(cls(data, batches, _importance(algorithm, context, data), context, sample, ""))
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


def _importance(algorithm: Algorithm, context: Context, data: ClientData) -> Tensor | None:
    if algorithm.importance is None:
        return None
    labels = data.split.y.index_select(0, torch.from_numpy(data.rows))
    if data.relabel is not None:
        labels = data.relabel(labels, data.data.classes)
    return algorithm.importance(labels, data.data.classes, context.broadcast)
