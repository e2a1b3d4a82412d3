"""The batches of several clients, padded to one shape, so that one program can train them all at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.context import ClientData
from fedquilt.base.rng import generator
from fedquilt.base.types import Indices
from fedquilt.round.loader import BatchLoader
from fedquilt.round.local_step import Batch

BLOCK_EXAMPLES = 2**15
"""Examples of a block made ready at a time, about: a bound on memory. It changes no bits."""


@dataclass(frozen=True)
class Shape:
    """Steps per call of the program, and examples per step. Fixed for a round, whoever takes part: it is compiled for."""

    steps: int
    batch: int

    @classmethod
    def of(cls, algorithm: Algorithm, largest: int, round_: int, most: int) -> Shape:
        """Return the shape that the largest client of the population needs, at most `most` steps per call."""
        cuts = algorithm.sample(largest, generator(0, "shape"), round_).cuts
        total = len(cuts) - 1
        return cls(-(-total // -(-total // most)), int(np.diff(cuts).max()))


@dataclass(frozen=True, eq=False)
class Padded:
    """Where every example of a block goes: (calls, clients, steps per call, batch).

    `rows` are positions in the data, `mask` is 1 where there is an example and 0 in the padding, `active` says which
    clients take a step at all.
    """

    loaders: Sequence[BatchLoader]
    rows: Indices
    mask: npt.NDArray[np.float32]
    active: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, loaders: Sequence[BatchLoader], shape: Shape) -> Padded:
        """Executor the batches of some clients."""
        steps = max(len(loader.batches.cuts) for loader in loaders) - 1
        calls = -(-steps // shape.steps)
        # Padding is filled with an example of the client's own: its weight is 0, but 0·NaN would not be.
        firsts = np.asarray([loader.data.rows[0] for loader in loaders], dtype=np.int64)
        rows = np.repeat(firsts[:, None], calls * shape.steps * shape.batch, axis=1)
        mask = np.zeros(rows.shape, dtype=np.float32)
        active = np.zeros((len(loaders), calls * shape.steps), dtype=bool)
        for members in _alike(loaders):
            sizes = np.diff(loaders[members[0]].batches.cuts)
            held = np.stack([loaders[index].data.rows[loaders[index].batches.order] for index in members])
            where = np.ix_(np.asarray(members), _positions(sizes, shape.batch))
            rows[where] = held
            mask[where] = 1.0
            active[members, : len(sizes)] = True
        steps_and_batches = (len(loaders), calls * shape.steps, shape.batch)
        rows, mask = rows.reshape(steps_and_batches), mask.reshape(steps_and_batches)
        return cls(loaders, *(_by_call(values, calls) for values in (rows, mask, active)))

    @cached_property
    def full(self) -> bool:
        """Whether there is no padding at all."""
        return bool(self.mask.all())

    def ready(self) -> Iterator[Batch]:
        """Make the examples ready, call by call; weights are given where they are not all 1."""
        one = self.loaders[0].data
        several = max((one.data.at_once or BLOCK_EXAMPLES) // max(self.rows[0].size, 1), 1)
        for first in range(0, len(self.rows), several):
            rows = torch.from_numpy(self.rows[first : first + several])
            y = one.split.targets(rows.flatten())
            y = y.view(*rows.shape, *y.shape[1:])
            x = self._augmented[first : first + several] if one.data.augment is not None else _inputs(one, rows)
            for client, loader in enumerate(self.loaders):
                relabel = loader.data.relabel
                if relabel is not None:
                    y[:, client] = relabel(y[:, client].flatten(), one.data.classes).view(y[:, client].shape)
            made = [x, y]
            if self.loaders[0].weights is not None or not self.full:
                mask = torch.from_numpy(self.mask[first : first + several])
                made += [self._weights(mask, y), mask]
            for call in range(len(rows)):
                yield Batch(*(values[call] for values in made))

    def mean_losses(self, losses: Tensor) -> list[float]:
        """Return every client's mean loss over its examples; `losses` are (clients, steps)."""
        sizes = np.moveaxis(self.mask.sum(axis=3, dtype=np.float64), 0, 1).reshape(len(self.loaders), -1)
        seen = np.where(sizes > 0, losses.double().numpy(), 0.0)
        return ((seen * sizes).sum(axis=1) / sizes.sum(axis=1)).tolist()  # type: ignore[no-any-return]

    def _weights(self, mask: Tensor, y: Tensor) -> Tensor:
        given = [loader.weights for loader in self.loaders if loader.weights is not None]
        if not given:
            return mask
        return mask * torch.stack([weights[y[:, client]] for client, weights in enumerate(given)], dim=1)

    @cached_property
    def _augmented(self) -> Tensor:
        """The inputs of all steps: random changes are drawn client by client, in the order of its own training."""
        calls, clients, steps, batch = self.rows.shape
        ready = [torch.cat([made.x for made in loader]) for loader in self.loaders]
        x = ready[0].new_zeros(clients, calls * steps * batch, *ready[0].shape[1:])
        for padded, loader, changed in zip(x, self.loaders, ready, strict=True):
            padded[torch.from_numpy(_positions(np.diff(loader.batches.cuts), batch))] = changed
        return x.view(clients, calls, steps, batch, *x.shape[2:]).transpose(0, 1).contiguous()


def _alike(loaders: Sequence[BatchLoader]) -> list[list[int]]:
    """Return the indices of loaders that share their cuts, as clients of the same size often do."""
    groups: dict[int, list[int]] = {}
    for index, loader in enumerate(loaders):
        groups.setdefault(id(loader.batches.cuts), []).append(index)
    return list(groups.values())


def _by_call(values: npt.NDArray[Any], calls: int) -> npt.NDArray[Any]:
    """Cut (clients, steps, …) into calls: (calls, clients, steps per call, …), each of them in one piece of memory."""
    cut = values.reshape(len(values), calls, values.shape[1] // calls, *values.shape[2:])
    return np.ascontiguousarray(np.moveaxis(cut, 1, 0))


def _inputs(data: ClientData, rows: Tensor) -> Tensor:
    x = data.data.inputs(data.split, rows.flatten())
    return x.view(*rows.shape, *x.shape[1:])


def _positions(sizes: Indices, batch: int) -> Indices:
    """Return where the examples of batches of these sizes go in a row of positions, `batch` for each.

    >>> _positions(np.array([2, 1]), 3).tolist()
    [0, 1, 3]
    """
    if (sizes == batch).all():
        return np.arange(len(sizes) * batch)
    starts = np.repeat(np.arange(len(sizes)) * batch - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)
    return starts + np.arange(sizes.sum())
