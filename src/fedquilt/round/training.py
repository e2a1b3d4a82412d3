"""Local training of one client, step by step. Clients in blocks are trained in block.py, with the same local step."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedquilt.algorithm.algorithm import Algorithm, Until
from fedquilt.algorithm.context import ClientData, Context
from fedquilt.algorithm.parts.losses import by_kernel
from fedquilt.algorithm.parts.plain_descent import PlainDescent, plain_descent
from fedquilt.algorithm.penalty import classifier_layer, watched
from fedquilt.algorithm.transform import At
from fedquilt.base.errors import reason_of
from fedquilt.base.rng import generator, torch_seeded
from fedquilt.base.types import Indices
from fedquilt.compute.interrupts import comes_from_outside
from fedquilt.compute.kernels.descending import taking_own_steps
from fedquilt.compute.layout import ModelState, State, Tensors
from fedquilt.round.loader import BatchLoader
from fedquilt.round.local_step import EAGER, Carried, Recipe, local_step

OPTIMISER = "optimiser"
"""The name under which a client keeps its optimiser's state; exchanges have theirs."""


class ClientError(Exception):
    """Local training failed; the message names the local step."""


@dataclass(frozen=True, eq=False)
class LocalResult:
    """A model after local training, and what training took."""

    after: ModelState
    optimiser: State
    loss: float
    steps: int
    examples: int


def train_locally(
    algorithm: Algorithm,
    context: Context,
    data: ClientData,
    begin: ModelState,
    given: dict[str, Tensors] | None = None,
    purpose: str = "",
) -> LocalResult:
    """Train a model on one client's data, from `begin`; `context.start` is what proximal terms and projections refer to.

    `purpose` sets the draws of a second training in the same round apart from those of the first.
    """
    replica, key, placement = context.replica, context.key, context.replica.placement
    start = placement.put(replica.layout.parameters_of(context.start.vector))
    params, buffers = replica.load(begin)
    carried = Carried(placement.put(optimiser_of(algorithm, context, start)), buffers)
    given = placement.put(given)
    rates = placement.put([torch.tensor(rate(context.round), dtype=torch.float32) for rate in algorithm.local.rates])
    noise = generator(context.seed, f"{purpose}local noise", *key) if algorithm.local.normals else None
    losses: list[Tensor] = []
    until = algorithm.course.until
    with ExitStack() as stack:
        stack.enter_context(
            torch_seeded(context.seed, f"{purpose}module", context.round, context.slot, placement.device)
        )
        try:
            loader = BatchLoader.of(algorithm, context, data, purpose)
            module = replica.module.train()
            watching = tuple(
                (penalty, stack.enter_context(watched(module, classifier_layer(module, penalty.layer))))
                for penalty in algorithm.penalties
            )
            own_steps = stack.enter_context(taking_own_steps(module, _plain_rate(algorithm, rates)))
            criterion = algorithm.loss if own_steps is None else by_kernel(algorithm.loss)
            recipe = Recipe(
                module, criterion, algorithm.local, EAGER, watching, placement.autocast, own_steps=own_steps
            )
            for batch in loader:
                normals = placement.put(draw_normals(noise, algorithm.local.normals, params))
                at = At(params, start, rates, normals, given=given or {})
                params, carried, loss = local_step(recipe, carried, batch, at)
                losses.append(loss)
                if until is not None and _converged(until, losses, loader):
                    break
        except BaseException as error:
            if comes_from_outside(error):
                raise
            raise ClientError(f"local step {len(losses) + 1}: {reason_of(error)}") from error
    cuts = loader.batches.cuts[: len(losses) + 1]
    mean = mean_loss(placement.fetch(torch.stack(losses)), cuts)
    return LocalResult(replica.read(), placement.fetch(carried.optimiser), mean, len(losses), int(cuts[-1]))


def _plain_rate(algorithm: Algorithm, rates: Sequence[Tensor]) -> float | None:
    """Return the rate of a method whose local step is w ← w − rate·g and nothing else, or None."""
    plain = not algorithm.penalties and plain_descent(algorithm.local) == PlainDescent()
    return float(rates[0]) if plain else None


def optimiser_of(algorithm: Algorithm, context: Context, params: Tensors) -> State:
    """Return the optimiser's state that a client starts with: its own, where it keeps one."""
    if algorithm.local.keep and OPTIMISER in context.client_state:
        return context.client_state[OPTIMISER]  # type: ignore[return-value]
    return algorithm.local.init(params)


def _converged(until: Until, losses: list[Tensor], loader: BatchLoader) -> bool:
    """Say whether training has converged, at the end of a pass over the data."""
    cuts, examples = loader.batches.cuts, loader.a_pass
    done = int(cuts[len(losses)])
    if done % examples:
        return False
    sizes = torch.from_numpy(np.diff(cuts[: len(losses) + 1])).double()
    passes = torch.stack(losses).cpu().double().mul(sizes)
    pass_of = torch.from_numpy((cuts[: len(losses)] // examples).astype(np.int64))
    totals = torch.zeros(done // examples, dtype=torch.float64).index_add_(0, pass_of, passes)
    return until((totals / examples).tolist())


def draw_normals(rng: np.random.Generator | None, count: int, params: Tensors) -> Sequence[Tensors]:
    """Draw standard normal noise shaped like the parameters, `count` times; none without a generator."""
    if rng is None:
        return ()
    return [
        {name: torch.from_numpy(rng.standard_normal(p.shape, dtype=np.float32)) for name, p in params.items()}
        for _ in range(count)
    ]


def mean_loss(losses: Tensor, cuts: Indices) -> float:
    """Return the mean loss over the examples of batches whose bounds are `cuts`."""
    sizes = np.diff(cuts)
    return float((losses.numpy().astype(np.float64) * sizes).sum() / sizes.sum())
