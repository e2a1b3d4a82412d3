"""A round is three functions: plan, client_update (in client.py), merge. None knows which engine runs it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedquilt.core.algorithm import Algorithm, Indices
from fedquilt.core.client import ClientUpdate, Fault
from fedquilt.core.exact import LARGEST, ExactMean
from fedquilt.core.params import Layout, ModelState
from fedquilt.core.rng import generator
from fedquilt.core.state import ServerState
from fedquilt.core.transform import At, State


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
    weights = (algorithm.weigh(int(size)) for size in chosen)
    planned = math.fsum(weight for weight in weights if math.isfinite(weight) and weight > 0)
    return Plan(round_, clients, chosen, planned)


def merge(
    algorithm: Algorithm, layout: Layout, state: ServerState, planned: Plan, results: Iterable[ClientUpdate | Fault]
) -> tuple[ServerState, Merged]:
    """Fold the clients' updates, in whatever order they come, into the next state.

    A client that failed or sent something unusable is left out and named; the weights are over the others. If nobody is
    left the model and the server's optimiser stay as they were.
    """
    deltas = algorithm.reduce(layout.size, planned.weight)
    buffers = ExactMean(layout.buffer_size, planned.weight)
    counters = state.model.counters.clone()
    taken: dict[int, ClientUpdate] = {}
    faults: list[Fault] = []
    for result in results:
        if isinstance(result, Fault):
            faults.append(result)
            continue
        reason = fault_in(result, layout)
        if reason:
            faults.append(Fault(result.client, result.slot, reason))
            continue
        deltas.add(result.slot, result.delta, result.weight)
        buffers.add(result.slot, result.buffers, result.weight)
        torch.maximum(counters, result.counters, out=counters)
        taken[result.slot] = result
    report = _report(taken, faults)
    delta, buffer = deltas.finish(), buffers.finish()
    if delta is None or buffer is None:
        return ServerState(planned.round, state.model, state.optimiser), report
    vector, optimiser = _server_step(algorithm, state, planned.round, delta)
    return ServerState(planned.round, ModelState(vector, buffer, counters), optimiser), report


def fault_in(update: ClientUpdate, layout: Layout) -> str | None:
    """Say what makes an update unusable, if anything does."""
    if not math.isfinite(update.weight):
        return f"sent the weight {update.weight}"
    if update.weight < 0:
        return f"sent a negative weight ({update.weight:g})"
    parts = (("update", update.delta, layout.size), ("buffers", update.buffers, layout.buffer_size))
    for what, values, size in parts:
        if values.dim() != 1 or len(values) != size:
            return f"sent {what} of {values.numel()} values, where the model has {size}"
        if not size:
            continue
        low, high = (float(bound) for bound in torch.aminmax(values))
        if math.isnan(low) or math.isnan(high):
            return f"sent NaN in its {what}"
        if math.isinf(low) or math.isinf(high):
            return f"sent an infinite value in its {what}"
        if max(-low, high) >= LARGEST:
            return f"sent a value of {max(-low, high):.3g} in its {what}; the limit is {LARGEST:.0f}"
    if update.counters.shape != (layout.counter_size,):
        return f"sent {update.counters.numel()} whole-number buffers, where the model has {layout.counter_size}"
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
