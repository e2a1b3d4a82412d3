"""Blocks of clients trained by the kernel for stacks of linear layers, all their steps in one call.

Every client is trained as if it were alone: how many are trained at once, and who, changes no bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.context import ClientBlock
from fedquilt.algorithm.parts.features import FeaturePenalty
from fedquilt.algorithm.parts.losses import cross_entropy
from fedquilt.algorithm.parts.plain_descent import PlainDescent, plain_descent
from fedquilt.algorithm.penalty import Penalty, classifier_layer
from fedquilt.base.types import Indices
from fedquilt.compute.device import CPU, Placement
from fedquilt.compute.kernels.stack import (
    Descent,
    Examples,
    LastLayerPenalties,
    Stack,
    rows_of,
    stack_of,
    train_stack,
)
from fedquilt.compute.layout import ModelState, Tensors
from fedquilt.compute.replica import Replica
from fedquilt.data.data import Data, Split
from fedquilt.round.block import BlockResult
from fedquilt.round.loader import BatchLoader, BlockBatches, drawn_at_once

AT_ONCE = 2**22
"""Numbers of examples made ready at a time, about: a bound on memory. It changes no bits."""

NARROW = 32
"""Rows or columns of a classifier whose trace norm the kernel is good at: its method is made for few."""


@dataclass(frozen=True, eq=False)
class FusedProgram:
    """Trains blocks of clients of a model and method that `unfusable` has nothing against."""

    replica: Replica
    algorithm: Algorithm
    block: int
    compiled: bool = True

    @cached_property
    def _stack(self) -> Stack:
        found = stack_of(self.replica.module)
        assert found is not None
        return found

    @cached_property
    def _descent(self) -> PlainDescent:
        found = plain_descent(self.algorithm.local)
        assert found is not None
        return found

    def train_locally(self, block: ClientBlock, givens: Sequence[dict[str, Tensors]]) -> BlockResult:
        """Train a block of clients that start from the same model."""
        algorithm, plain = self.algorithm, self._descent
        start = block.first.start
        vectors = start.vector.repeat(len(block), 1)
        velocities = torch.zeros_like(vectors) if plain.momentum else None
        given = torch.stack([self._given(each) for each in givens]) if plain.given else None
        rate = float(np.float32(algorithm.local.rates[0](block.first.round)))
        descent = Descent(rate, plain.momentum, plain.decay, plain.pull)
        penalties = self._penalties(givens)
        offsets = {entry.name: entry.offset for entry in self.replica.layout.parameters}
        lost, seen, steps = np.zeros(len(block)), np.zeros(len(block)), np.zeros(len(block), dtype=np.int64)
        for clients, examples in self._examples(block):
            of_clients = (None if each is None else each[clients] for each in (vectors, velocities, given))
            trained, moving, added = of_clients
            assert trained is not None
            losses = train_stack(
                *(self._stack, offsets, trained, moving, start.vector, added, examples, descent),
                algorithm.loss.normalise,
                penalties.of(clients),
            )
            counts = np.add.reduceat(examples.sizes, examples.firsts)
            lost[clients] += losses * counts
            seen[clients] += counts
            steps[clients] += examples.steps
        empty, whole = torch.zeros(len(block), 0), torch.zeros(len(block), 0, dtype=torch.int64)
        after, losses = ModelState(vectors, empty, whole), (lost / seen).tolist()
        return BlockResult(after, {}, losses, steps.tolist(), seen.astype(np.int64).tolist())

    def _given(self, given: dict[str, Tensors]) -> Tensor:
        """Add up what exchanges give a client, as one vector."""
        entries = self.replica.layout.parameters
        every = [torch.cat([given[name][e.name].reshape(-1) for e in entries]) for name in self._descent.given]
        return torch.stack(every).sum(dim=0)

    def _penalties(self, givens: Sequence[dict[str, Tensors]]) -> LastLayerPenalties:
        """Return what is added to the loss, with what every client has for it."""
        if not self.algorithm.penalties:
            return LastLayerPenalties()
        added = feature_penalty(self.algorithm.penalties)
        assert added is not None
        given = [each.get(added.name, {}) for each in givens]
        drawn = torch.stack([each["drawn"].mean(0) for each in given]) if added.gamma else None
        sizes = torch.stack([each["examples"] for each in given]) if added.beta and added.norm == "client" else None
        return LastLayerPenalties(added.alpha, added.beta, added.gamma, added.squared, sizes, drawn)

    def _examples(self, block: ClientBlock) -> Iterator[tuple[slice, Examples]]:
        """Make examples ready, those of several small clients at a time, or of some steps of a large one."""
        data = block.data_of(0).data
        most = data.at_once or max(AT_ONCE // self._stack.layers[0].inputs, 1)
        first = 0
        while first < len(block):
            last, rows = first + 1, block.sizes[first]
            large = data.augment is not None or rows > most
            while not large and last < len(block) and rows + block.sizes[last] <= most:
                rows += block.sizes[last]
                last += 1
            part, clients = block.part(first, last), slice(first, last)
            drawn = None if large else drawn_at_once(self.algorithm, part)
            if drawn is not None:
                yield clients, self._all(part, drawn)
            elif large:
                (loader,) = BatchLoader.of_all(self.algorithm, part)
                yield from ((clients, each) for each in self._in_order(loader, most))
            else:
                yield clients, self._gathered(BatchLoader.of_all(self.algorithm, part), part.sizes)
            first = last

    def _all(self, block: ClientBlock, drawn: BlockBatches) -> Examples:
        """Make the examples of all clients ready; batches find theirs by number."""
        held = block.data_of(0)
        x, y = held.data.batch(held.split, torch.from_numpy(block.rows))
        before = np.cumsum(block.sizes) - block.sizes
        return self._fit(x, y, None, drawn.order + np.repeat(before, drawn.counts), drawn.ends, drawn.steps)

    def _gathered(self, loaders: Sequence[BatchLoader], lengths: Sequence[int]) -> Examples:
        """Make each of some clients' examples ready once; batches find theirs by number."""
        one = loaders[0].data
        rows = torch.from_numpy(rows_of([loader.data.rows for loader in loaders]))
        x, y = one.data.batch(one.split, rows)
        starts = np.cumsum([0, *lengths[:-1]])
        if any(loader.data.relabel is not None for loader in loaders):
            y = y.clone()
            for loader, begin, length in zip(loaders, starts.tolist(), lengths, strict=True):
                if loader.data.relabel is not None:
                    mine = y[begin : begin + length]
                    mine.copy_(loader.data.relabel(mine.clone(), one.data.classes))
        weights = None
        if loaders[0].weights is not None:
            parts = zip((loader.weights for loader in loaders), torch.split(y, list(lengths)), strict=True)
            weights = torch.cat([of_class[classes] for of_class, classes in parts if of_class is not None])
        orders, cuts = [loader.batches.order for loader in loaders], [loader.batches.cuts for loader in loaders]
        order = rows_of(orders) + np.repeat(starts, [len(each) for each in orders])
        ends = rows_of([each[1:] for each in cuts])
        steps = np.asarray([len(each) - 1 for each in cuts], dtype=np.int64)
        return self._fit(x, y, weights, order, ends, steps)

    def _in_order(self, loader: BatchLoader, most: int) -> Iterator[Examples]:
        """Make a client's batches ready in their order, some at a time, as they are augmented."""
        batches = list[tuple[Tensor, ...]]()
        for batch in loader:
            batches.append((batch.x, batch.y) if batch.weights is None else (batch.x, batch.y, batch.weights))
            if sum(len(made[1]) for made in batches) >= most:
                yield self._joined(batches)
                batches = []
        if batches:
            yield self._joined(batches)

    def _joined(self, batches: Sequence[tuple[Tensor, ...]]) -> Examples:
        x, y, *weights = (torch.cat(parts) for parts in zip(*batches, strict=True))
        ends = np.cumsum([len(made[1]) for made in batches], dtype=np.int64)
        order = np.arange(len(y), dtype=np.int64)
        return self._fit(x, y, weights[0] if weights else None, order, ends, np.asarray([len(batches)], dtype=np.int64))

    def _fit(
        self, x: Tensor, y: Tensor, weights: Tensor | None, order: Indices, ends: Indices, steps: Indices
    ) -> Examples:
        x = x.flatten(1) if self._stack.flattens else x
        weights = None if weights is None else weights.float().contiguous()
        return Examples(x.contiguous(), y.contiguous(), weights, order, ends, steps)


def unfusable(module: nn.Module, algorithm: Algorithm, data: Data, split: Split, placement: Placement) -> str | None:
    """Say why a model or method cannot be trained by the kernel for stacks of linear layers, if it cannot.

    >>> from fedquilt import arrays, fed_avg
    >>> data = arrays(np.zeros((4, 2), "float32"), [0, 1, 0, 1], np.zeros((2, 2), "float32"), [0, 1])
    >>> unfusable(nn.Linear(2, 2), fed_avg(), data, data.test, CPU) is None
    True
    >>> unfusable(nn.LSTM(2, 2), fed_avg(), data, data.test, CPU)
    'the model is not a stack of linear layers with ReLU or cosine features between them'
    """
    stack, loss = stack_of(module), cross_entropy()
    if placement != CPU:
        return f"the kernel computes in float32 on the CPU, not on {placement.device} in {placement.precision}"
    if stack is None:
        return "the model is not a stack of linear layers with ReLU or cosine features between them"
    if not stack.flattens and split.x.dim() != 2:
        return "the model's first layer takes examples of another shape"
    if (algorithm.loss.each, algorithm.loss.mean) != (loss.each, loss.mean):
        return "the loss is not cross-entropy"
    if split.y.dim() != 1 or split.y.is_floating_point():
        return "targets are not one class per example"
    if algorithm.penalties:
        added, last = feature_penalty(algorithm.penalties), stack.layers[-1]
        if added is None or f"{classifier_layer(module, algorithm.penalties[0].layer)}.weight" != last.weight:
            return f"{algorithm.name} adds a penalty to the loss that the kernel does not know"
        if added.alpha and min(last.inputs, last.outputs) > NARROW:
            return f"the trace norm of a classifier of more than {NARROW} classes is slower in the kernel"
    if algorithm.course.until is not None:
        return f"{algorithm.name} stops each client when it has converged"
    if plain_descent(algorithm.local) is None:
        return f"the local steps of {algorithm.name} are more than gradient descent"
    return None


def feature_penalty(penalties: Sequence[Penalty]) -> FeaturePenalty | None:
    """Return what is added to the loss in numbers, or None if it is anything else than one such penalty."""
    values = [each.value for each in penalties]
    return values[0] if len(values) == 1 and isinstance(values[0], FeaturePenalty) else None
