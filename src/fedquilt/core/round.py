"""A round is three functions: plan, client_update (in client.py), merge. None knows which engine runs it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedquilt.core.algorithm import Algorithm, Indices
from fedquilt.core.client import ClientUpdate, Fault
from fedquilt.core.exact import LARGEST, LARGEST_WEIGHT, OrderedMean
from fedquilt.core.params import Layout, ModelState
from fedquilt.core.rng import generator
from fedquilt.core.state import ServerState
from fedquilt.core.transform import At, State
from fedquilt.errors import OverflowInSumError

_NOTHING = torch.zeros(0)


@dataclass(frozen=True, eq=False)
class Plan:
    """A round before it runs: who takes part, in which slot, and the weight that the whole cohort would have."""

    round: int
    clients: Indices
    sizes: Indices
    weight: float


@dataclass(frozen=True)
class Merged:
    """What a round did, apart from the model."""

    clients: list[int]
    faults: list[Fault]
    loss: float | None
    steps: int
    examples: int
    kept: dict[int, State] = field(default_factory=dict)


def plan(algorithm: Algorithm, state: ServerState, sizes: Indices, seed: int) -> Plan:
    """Draw the cohort of the round after `state`; `sizes` are the numbers of examples of all clients."""
    round_ = state.round + 1
    clients = algorithm.select(sizes, generator(seed, "select", round_))
    chosen = sizes[clients]
    weights = (float(algorithm.weigh(int(size))) for size in chosen)
    usable = [weight for weight in weights if math.isfinite(weight) and weight > 0]
    if sum(usable) >= LARGEST_WEIGHT:
        raise OverflowInSumError(f"the weights of a round's clients add up to {sum(usable):g}; the limit is 2^60")
    return Plan(round_, clients, chosen, math.fsum(usable))


def merge(
    algorithm: Algorithm, layout: Layout, state: ServerState, planned: Plan, results: Iterable[ClientUpdate | Fault]
) -> tuple[ServerState, Merged]:
    """Fold the clients' updates, in whatever order they come, into the next state.

    A client that failed or sent something unusable is left out and named; the weights are over the others. If nobody is
    left the model and the server's optimiser stay as they were.
    """
    deltas = algorithm.reduce(layout.size, planned.weight)
    buffers = OrderedMean()
    counters = state.model.counters.clone()
    taken: dict[int, ClientUpdate] = {}
    faults: list[Fault] = []
    for result in results:
        if isinstance(result, Fault):
            faults.append(result)
            continue
        reason = fault_in(result, layout, state.model)
        if reason:
            faults.append(Fault(result.client, result.slot, reason))
            continue
        deltas.add(result.slot, result.delta, result.weight)
        buffers.add(result.slot, result.buffers, result.weight)
        torch.maximum(counters, result.counters, out=counters)
        taken[result.slot] = replace(result, delta=_NOTHING, buffers=_NOTHING, counters=_NOTHING)
    report = _report(taken, faults)
    delta = deltas.finish()
    if delta is None:
        return ServerState(planned.round, state.model, state.optimiser), report
    buffer = buffers.finish() if layout.buffer_size else state.model.buffers
    vector, optimiser = _server_step(algorithm, state, planned.round, delta)
    return ServerState(planned.round, ModelState(vector, buffer, counters), optimiser), report


def wrong_shape(update: ClientUpdate, layout: Layout) -> str | None:
    """Say which part of an update has another shape than the model's, if one has."""
    parts = (
        ("an update", update.delta, layout.size),
        ("buffers", update.buffers, layout.buffer_size),
        ("whole-number buffers", update.counters, layout.counter_size),
    )
    for what, values, size in parts:
        if values.shape != (size,):
            return f"sent {what} of the shape {tuple(values.shape)}, where the model has {(size,)}"
    return None


def fault_in(update: ClientUpdate, layout: Layout, start: ModelState) -> str | None:
    """Say what makes an update unusable, if anything does."""
    if not math.isfinite(update.weight):
        return f"sent the weight {update.weight}"
    if update.weight < 0:
        return f"sent a negative weight ({update.weight:g})"
    wrong = wrong_shape(update, layout)
    if wrong is not None:
        return wrong
    low, high = (float(bound) for bound in torch.aminmax(update.delta))
    if math.isnan(low) or math.isnan(high):
        return "sent NaN in its update"
    if math.isinf(low) or math.isinf(high):
        return "sent an infinite value in its update"
    if max(-low, high) >= LARGEST:
        return f"sent a value of {max(-low, high):.3g} in its update; the limit is {LARGEST:.0f}"
    # A constant buffer may well hold an infinity, such as a mask's; one that became so in training may not.
    if bool((~torch.isfinite(update.buffers) & torch.isfinite(start.buffers)).any()):
        return "sent NaN or an infinite value in its buffers"
    return None


def _server_step(algorithm: Algorithm, state: ServerState, round_: int, delta: Tensor) -> tuple[Tensor, State]:
    params = {"model": state.model.vector}
    rates = [torch.tensor(rate(round_), dtype=torch.float32) for rate in algorithm.server.rates]
    step, optimiser = algorithm.server.update({"model": -delta}, state.optimiser, At(params, params, rates))
    return state.model.vector + step["model"], optimiser


def _report(taken: dict[int, ClientUpdate], faults: list[Fault]) -> Merged:
    updates = [taken[slot] for slot in sorted(taken)]
    heard = [(update.loss, update.examples) for update in updates if math.isfinite(update.loss)]
    examples = sum(count for _, count in heard)
    return Merged(
        clients=[update.client for update in updates],
        faults=sorted(faults, key=lambda fault: fault.slot),
        loss=math.fsum(loss * count for loss, count in heard) / examples if examples else None,
        steps=sum(update.steps for update in updates),
        examples=sum(update.examples for update in updates),
        kept={update.client: update.keep for update in updates if update.keep is not None},
    )
