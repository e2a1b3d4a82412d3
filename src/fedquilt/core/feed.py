"""What a client's training is fed with: its batches, made ready for the model, and the weights of their examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedquilt.core.ahead import made_ahead
from fedquilt.core.algorithm import Algorithm, Batches, Indices
from fedquilt.core.context import ClientData, Context
from fedquilt.core.local import Batch
from fedquilt.core.rng import generator
from fedquilt.data.data import whole

GATHERED = 4096
"""Examples made ready at a time: a bound on memory, fixed, because augmentation draws follow it."""

LabelFlip = Callable[[Tensor, int], Tensor]


@dataclass(frozen=True, eq=False)
class Feed:
    """A client's batches of a round, the weight of an example of each class, and how labels are corrupted, if they are.

    `a_pass` is how many examples a pass over the data has.
    """

    data: ClientData
    batches: Batches
    weights: Tensor | None
    flip: LabelFlip | None
    context: Context
    purpose: str
    a_pass: int

    @classmethod
    def of(cls, algorithm: Algorithm, context: Context, data: ClientData, purpose: str = "") -> Feed:
        """Draw a client's batches."""
        rng = generator(context.seed, f"{purpose}sample", *context.key)
        flip = _label_flip(context)
        counted = getattr(algorithm.sample, "a_pass", None)  # where a pass may leave examples out
        return cls(
            data=data,
            batches=algorithm.sample(len(data), rng, context.round),
            weights=_importance(algorithm, context, data, flip),
            flip=flip,
            context=context,
            purpose=purpose,
            a_pass=len(data) if counted is None else counted(len(data), context.round),
        )

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
            yield from map(Batch, *(torch.split(part, sizes) for part in self.context.bench.place.put(made)))
            first = last

    def _ready(self, order: Indices, rng: np.random.Generator | None) -> tuple[Tensor, Tensor]:
        rows, data, noise = torch.from_numpy(self.data.rows[order]), self.data.data, self.data.split.noise
        x, y = self.data.split.take(rows)
        y = whole(y)
        if self.flip is not None:
            y = self.flip(y, data.classes)
        if data.augment is not None and rng is not None:
            x = data.augment(x, rng)
        elif data.prepare is not None:
            x = data.prepare(x)
        return x if noise is None else noise.added(x, rows.numpy()), y


def _importance(algorithm: Algorithm, context: Context, data: ClientData, flip: LabelFlip | None) -> Tensor | None:
    if algorithm.importance is None:
        return None
    labels = data.split.y.index_select(0, torch.from_numpy(data.rows))
    if flip is not None:
        labels = flip(labels, data.data.classes)
    return algorithm.importance(labels, data.data.classes, context.announced)


def _label_flip(context: Context) -> LabelFlip | None:
    for corruption in context.corruption:
        if corruption.labels is not None and corruption.hits(context.client, context.population, context.seed):
            return corruption.labels
    return None
