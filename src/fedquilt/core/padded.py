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

from fedquilt.core.algorithm import Algorithm, Indices
from fedquilt.core.context import ClientData
from fedquilt.core.feed import Feed
from fedquilt.core.rng import generator
from fedquilt.data.data import whole

GATHERED = 2**15
"""Examples of a block made ready at a time, about: a bound on memory. It changes no bits."""


@dataclass(frozen=True)
class Shape:
    """Steps a call of the program, and examples a step. Fixed for a round, whoever takes part: it is compiled for."""

    steps: int
    batch: int

    @classmethod
    def of(cls, algorithm: Algorithm, largest: int, round_: int, most: int) -> Shape:
        """Return the shape that the largest client of the population needs, at most `most` steps a call."""
        cuts = algorithm.sample(largest, generator(0, "shape"), round_).cuts
        total = len(cuts) - 1
        return cls(-(-total // -(-total // most)), int(np.diff(cuts).max()))


@dataclass(frozen=True, eq=False)
class Padded:
    """Where every example of a block goes: (calls, clients, steps a call, batch).

    `rows` are positions in the data, `there` is 1 where there is an example and 0 in the padding, `active` says which
    clients take a step at all.
    """

    feeds: Sequence[Feed]
    rows: Indices
    there: npt.NDArray[np.float32]
    active: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, feeds: Sequence[Feed], shape: Shape) -> Padded:
        """Place the batches of some clients."""
        steps = max(len(feed.batches.cuts) for feed in feeds) - 1
        calls = -(-steps // shape.steps)
        # Padding is filled with an example of the client's own: its weight is 0, but 0·NaN would not be.
        own = np.asarray([feed.data.rows[0] for feed in feeds], dtype=np.int64)
        rows = np.repeat(own[:, None], calls * shape.steps * shape.batch, axis=1)
        there = np.zeros(rows.shape, dtype=np.float32)
        active = np.zeros((len(feeds), calls * shape.steps), dtype=bool)
        for members in _alike(feeds):
            sizes = np.diff(feeds[members[0]].batches.cuts)
            held = np.stack([feeds[place].data.rows[feeds[place].batches.order] for place in members])
            where = np.ix_(np.asarray(members), _places(sizes, shape.batch))
            rows[where] = held
            there[where] = 1.0
            active[members, : len(sizes)] = True
        steps_and_batches = (len(feeds), calls * shape.steps, shape.batch)
        rows, there = rows.reshape(steps_and_batches), there.reshape(steps_and_batches)
        return cls(feeds, *(_by_call(values, calls) for values in (rows, there, active)))

    @cached_property
    def full(self) -> bool:
        """Whether there is no padding at all."""
        return bool(self.there.all())

    def ready(self) -> Iterator[dict[str, Tensor]]:
        """Make the examples ready, call by call: inputs, targets, and weights where they are not all 1."""
        one = self.feeds[0].data
        several = max((one.data.at_once or GATHERED) // max(self.rows[0].size, 1), 1)
        for first in range(0, len(self.rows), several):
            rows = torch.from_numpy(self.rows[first : first + several])
            y = whole(one.split.y.index_select(0, rows.flatten()))
            y = y.view(*rows.shape, *y.shape[1:])
            x = self._augmented[first : first + several] if one.data.augment is not None else _inputs(one, rows)
            for client, feed in enumerate(self.feeds):
                if feed.flip is not None:
                    y[:, client] = feed.flip(y[:, client].flatten(), one.data.classes).view(y[:, client].shape)
            fed = {"x": x, "y": y}
            if self.feeds[0].weights is not None or not self.full:
                fed["there"] = torch.from_numpy(self.there[first : first + several])
                fed["weights"] = self._weights(fed["there"], y)
            for call in range(len(rows)):
                yield {name: values[call] for name, values in fed.items()}

    def mean_losses(self, losses: Tensor) -> list[float]:
        """Return every client's mean loss over its examples; `losses` are (clients, steps)."""
        sizes = np.moveaxis(self.there.sum(axis=3, dtype=np.float64), 0, 1).reshape(len(self.feeds), -1)
        seen = np.where(sizes > 0, losses.double().numpy(), 0.0)
        return ((seen * sizes).sum(axis=1) / sizes.sum(axis=1)).tolist()  # type: ignore[no-any-return]

    def _weights(self, there: Tensor, y: Tensor) -> Tensor:
        given = [feed.weights for feed in self.feeds if feed.weights is not None]
        if not given:
            return there
        return there * torch.stack([own[y[:, client]] for client, own in enumerate(given)], dim=1)

    @cached_property
    def _augmented(self) -> Tensor:
        """The inputs of all steps: random changes are drawn client by client, in the order of its own training."""
        calls, clients, steps, batch = self.rows.shape
        ready = [torch.cat([made.x for made in feed]) for feed in self.feeds]
        x = ready[0].new_zeros(clients, calls * steps * batch, *ready[0].shape[1:])
        for own, feed, changed in zip(x, self.feeds, ready, strict=True):
            own[torch.from_numpy(_places(np.diff(feed.batches.cuts), batch))] = changed
        return x.view(clients, calls, steps, batch, *x.shape[2:]).transpose(0, 1).contiguous()


def _alike(feeds: Sequence[Feed]) -> list[list[int]]:
    """Return the places of feeds that share their cuts, as clients of a size often do."""
    groups: dict[int, list[int]] = {}
    for place, feed in enumerate(feeds):
        groups.setdefault(id(feed.batches.cuts), []).append(place)
    return list(groups.values())


def _by_call(values: npt.NDArray[Any], calls: int) -> npt.NDArray[Any]:
    """Cut (clients, steps, …) into calls: (calls, clients, steps a call, …), each of them in one piece of memory."""
    cut = values.reshape(len(values), calls, values.shape[1] // calls, *values.shape[2:])
    return np.ascontiguousarray(np.moveaxis(cut, 1, 0))


def _inputs(data: ClientData, rows: Tensor) -> Tensor:
    x = data.split.x.index_select(0, rows.flatten())
    x = x if data.data.prepare is None else data.data.prepare(x)
    x = x if data.split.noise is None else data.split.noise.added(x, rows.flatten().numpy())
    return x.view(*rows.shape, *x.shape[1:])


def _places(sizes: Indices, batch: int) -> Indices:
    """Return where the examples of batches of these sizes go in a row of places, `batch` for each.

    >>> _places(np.array([2, 1]), 3).tolist()
    [0, 1, 3]
    """
    if (sizes == batch).all():
        return np.arange(len(sizes) * batch)
    starts = np.repeat(np.arange(len(sizes)) * batch - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)
    return starts + np.arange(sizes.sum())
