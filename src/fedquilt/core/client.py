"""What a client does in a round. The only place where local training happens, in simulation and in a real federation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedquilt.core.algorithm import Algorithm, Batches, Indices
from fedquilt.core.local import EAGER, Batch, Carried, Point, Recipe, local_step
from fedquilt.core.params import ModelState, Tensors
from fedquilt.core.rng import generator, torch_seeded
from fedquilt.core.transform import At, State
from fedquilt.core.workbench import Workbench
from fedquilt.data.data import Data, Split
from fedquilt.errors import told

GATHERED = 4096
"""Examples made ready at a time: a bound on memory, fixed, because augmentation draws follow it."""


@dataclass(frozen=True, eq=False)
class Context:
    """What a client is given: the model, and the keys of its random draws."""

    bench: Workbench
    start: ModelState
    seed: int
    round: int
    client: int
    slot: int
    kept: State | None = None
    announced: Tensors = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ClientData:
    """A client's examples: rows of a split, with the data set's way of making them ready."""

    data: Data
    split: Split
    rows: Indices

    def __len__(self) -> int:
        """Count the examples."""
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class ClientUpdate:
    """What a client sends back. Its tensors are valid until the engine is asked for the next one."""

    client: int
    slot: int
    delta: Tensor
    buffers: Tensor
    counters: Tensor
    weight: float
    loss: float
    steps: int
    examples: int
    keep: State | None = None


@dataclass(frozen=True)
class Fault:
    """A client that is left out of a round, and why."""

    client: int
    slot: int
    reason: str


class ClientError(Exception):
    """Local training failed; the message names the local step."""


def client_update(algorithm: Algorithm, context: Context, data: ClientData) -> ClientUpdate:
    """Train the round's model on one client's data and return the difference.

    Pure: the same arguments give the same bits, in whatever process.
    """
    bench, key = context.bench, (context.round, context.client, context.slot)
    recipe = Recipe(bench.module.train(), algorithm.loss, algorithm.local, EAGER)
    start = bench.layout.parameters_of(context.start.vector)
    params, buffers = bench.load(context.start)
    carried = Carried(_optimiser(algorithm, context, start), buffers)
    rates = [torch.tensor(rate(context.round), dtype=torch.float32) for rate in algorithm.local.rates]
    batches = algorithm.sample(len(data), generator(context.seed, "sample", *key))
    noise = generator(context.seed, "local noise", *key) if algorithm.local.normals else None
    losses: list[Tensor] = []
    with torch_seeded(context.seed, "module", context.round, context.slot):
        try:
            weights = _importance(algorithm, context, data)
            for batch in _ready(data, batches, weights, generator(context.seed, "augment", *key)):
                point = Point(start, rates, _normals(noise, algorithm.local.normals, params))
                params, carried, loss = local_step(recipe, params, carried, batch, point)
                losses.append(loss)
        except Exception as error:
            raise ClientError(f"local step {len(losses) + 1}: {told(error)}") from error
    after = bench.read()
    delta = after.vector.sub_(context.start.vector)
    return ClientUpdate(
        client=context.client,
        slot=context.slot,
        delta=_uploaded(algorithm, context, delta),
        buffers=after.buffers,
        counters=after.counters,
        weight=float(algorithm.weigh(len(data))),
        loss=_mean_loss(losses, batches),
        steps=len(losses),
        examples=len(batches.order),
        keep=carried.optimiser if algorithm.keep_local_state else None,
    )


def _optimiser(algorithm: Algorithm, context: Context, params: Tensors) -> State:
    if algorithm.keep_local_state and context.kept is not None:
        return context.kept
    return algorithm.local.init(params)


def _importance(algorithm: Algorithm, context: Context, data: ClientData) -> Tensor | None:
    if algorithm.importance is None:
        return None
    labels = data.split.y[torch.from_numpy(data.rows)]
    return algorithm.importance(labels, data.data.classes, context.announced)


def _ready(data: ClientData, batches: Batches, weights: Tensor | None, rng: np.random.Generator) -> Iterator[Batch]:
    """Make batches ready for the model, several at a time: one gather serves many small batches."""
    order, cuts = batches
    first = 0
    while first < len(cuts) - 1:
        last = max(int(np.searchsorted(cuts, cuts[first] + GATHERED, side="right")) - 1, first + 1)
        rows = torch.from_numpy(data.rows[order[cuts[first] : cuts[last]]])
        x, y = data.split.x[rows], data.split.y[rows]
        if data.data.augment is not None:
            x = data.data.augment(x, rng)
        elif data.data.prepare is not None:
            x = data.data.prepare(x)
        sizes = np.diff(cuts[first : last + 1]).tolist()
        parts = [torch.split(x, sizes), torch.split(y, sizes)]
        if weights is not None:
            parts.append(torch.split(weights[y], sizes))
        yield from map(Batch, *parts)
        first = last


def _normals(rng: np.random.Generator | None, count: int, params: Tensors) -> Sequence[Tensors]:
    if rng is None:
        return ()
    return [
        {name: torch.from_numpy(rng.standard_normal(p.shape, dtype=np.float32)) for name, p in params.items()}
        for _ in range(count)
    ]


def _uploaded(algorithm: Algorithm, context: Context, delta: Tensor) -> Tensor:
    upload = algorithm.upload
    named, params = {"model": delta}, {"model": context.start.vector}
    rates = [torch.tensor(rate(context.round), dtype=torch.float32) for rate in upload.rates]
    key = (context.round, context.client, context.slot)
    noise = generator(context.seed, "upload noise", *key) if upload.normals else None
    at = At(params, params, rates, _normals(noise, upload.normals, params))
    sent, _ = upload.update(named, upload.init(params), at)
    return sent["model"]


def _mean_loss(losses: list[Tensor], batches: Batches) -> float:
    if not losses:
        return math.nan
    sizes = torch.from_numpy(np.diff(batches.cuts)).double()
    return float((torch.stack(losses).double() * sizes).sum() / sizes.sum())
