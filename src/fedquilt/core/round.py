"""A round is three functions: plan (in plan.py), client_update (in client.py), merge. None knows which engine runs it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from fedquilt.core.algorithm import Algorithm
from fedquilt.core.client import ClientUpdate, Fault
from fedquilt.core.exact import LARGEST, WideMean
from fedquilt.core.fit import draw_normals
from fedquilt.core.params import Layout, ModelState, Tensors
from fedquilt.core.plan import Plan
from fedquilt.core.rng import generator
from fedquilt.core.state import ServerState
from fedquilt.core.tensors import flat
from fedquilt.core.transform import At, State
from fedquilt.core.updates import Answer, BlockUpdate, one_by_one


@dataclass(frozen=True)
class Merged:
    """What a round did, apart from the model; `told` is the bytes that clients told besides their updates."""

    clients: list[int]
    faults: list[Fault]
    loss: float | None
    steps: int
    examples: int
    told: int
    kept: dict[int, State] = field(default_factory=dict)


def merge(
    algorithm: Algorithm, layout: Layout, state: ServerState, planned: Plan, results: Iterable[Answer]
) -> tuple[ServerState, Merged]:
    """Fold the clients' updates, in whatever order they come, into the next state.

    A client that failed or sent something unusable is left out and named; the weights are over the others. If nobody is
    left the model, the server's optimiser and what is announced stay as they were.
    """
    cohort = planned.cohort(layout.size)
    deltas = algorithm.reduce(cohort)
    gathers = {e.name: e.gather(cohort) for e in algorithm.exchanges if e.gather is not None}
    buffers = WideMean(layout.buffer_size)
    counters = state.model.counters.clone()
    tally = Tally([Fault(planned.client_of[slot], slot, why, simulated=True) for slot, why in planned.absent.items()])
    at_once = None if gathers or layout.buffer_size or layout.counter_size else getattr(deltas, "add_block", None)
    for answer in results:
        if isinstance(answer, BlockUpdate) and at_once is not None and all_usable(answer, layout):
            at_once(answer)
            tally.take(answer)
            continue
        for result in one_by_one([answer]):
            if isinstance(result, Fault):
                tally.faults.append(result)
                continue
            misfit = misfit_of(result, layout)
            reason = misfit or overflow_in(result, state.model)
            if reason:
                kind: Literal["error", "overflow"] = "error" if misfit else "overflow"
                tally.faults.append(Fault(result.client, result.slot, reason, kind=kind))
                continue
            deltas.add(result)
            for gather in gathers.values():
                gather.add(result)
            if layout.buffer_size:
                buffers.add(result.slot, result.buffers, result.weight)
            if layout.counter_size:
                torch.maximum(counters, result.counters, out=counters)
            tally.take_one(result)
    report = tally.report()
    delta = deltas.finish()
    if delta is None:
        return ServerState(planned.round, state.model, state.optimiser, state.announced), report
    gathered = {name: gather.finish() for name, gather in gathers.items()}
    buffer = buffers.finish() if layout.buffer_size else state.model.buffers
    vector, optimiser = _server_step(algorithm, state, planned, delta, gathered)
    announced = _retold(algorithm, state.announced, gathered)
    return ServerState(planned.round, ModelState(vector, buffer, counters), optimiser, announced), report


@dataclass(eq=False)
class Tally:
    """Counts what was taken in, in columns: a cohort may have thousands of clients."""

    faults: list[Fault]
    told: int = 0
    kept: dict[int, State] = field(default_factory=dict)
    _rows: list[tuple[int, int, float, int, int]] = field(default_factory=list)

    def take_one(self, update: ClientUpdate) -> None:
        """Count one client's update."""
        self._rows.append((update.slot, update.client, update.loss, update.steps, update.examples))
        self.told += sum(tensor.nbytes for _, tensor in flat(update.told)) if update.told else 0
        if update.keep is not None:
            self.kept[update.client] = update.keep

    def take(self, block: BlockUpdate) -> None:
        """Count the updates of a block."""
        self._rows.extend(zip(block.slots, block.clients, block.losses, block.steps, block.examples, strict=True))

    def report(self) -> Merged:
        """Say what was counted, in the order of the slots."""
        rows = sorted(self._rows)
        heard = [(loss, examples) for _, _, loss, _, examples in rows if math.isfinite(loss)]
        seen = sum(count for _, count in heard)
        return Merged(
            clients=[client for _, client, *_ in rows],
            faults=sorted(self.faults, key=lambda fault: fault.slot),
            loss=math.fsum(loss * count for loss, count in heard) / seen if seen else None,
            steps=sum(steps for *_, steps, _ in rows),
            examples=sum(examples for *_, examples in rows),
            told=self.told,
            kept={client: self.kept[client] for _, client, *_ in rows if client in self.kept},
        )


def all_usable(block: BlockUpdate, layout: Layout) -> bool:
    """Say whether every update of a block can be taken in; `fault_in` says what is wrong with one that cannot."""
    deltas, weights = block.values.vector, block.weights
    if deltas.shape != (len(block), layout.size) or not deltas.numel():
        return False
    return all(0 <= weight < math.inf for weight in weights) and bool(deltas.abs().amax() < LARGEST)


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
    return misfit_of(update, layout) or overflow_in(update, start)


def misfit_of(update: ClientUpdate, layout: Layout) -> str | None:
    """Say what is wrong with the weight or the shape of an update, if anything is."""
    if not math.isfinite(update.weight):
        return f"sent the weight {update.weight}"
    if update.weight < 0:
        return f"sent a negative weight ({update.weight:g})"
    return wrong_shape(update, layout)


def overflow_in(update: ClientUpdate, start: ModelState) -> str | None:
    """Say what of an update is NaN, infinite or too large, if anything is."""
    low, high = (float(bound) for bound in torch.aminmax(update.delta))
    if math.isnan(low) or math.isnan(high):
        return "sent NaN in its update"
    if math.isinf(low) or math.isinf(high):
        return "sent an infinite value in its update"
    if max(-low, high) >= LARGEST:
        return f"sent a value of {max(-low, high):.3g} in its update; the limit is {LARGEST:.0f}"
    for name, told in flat(update.told):
        if told.is_floating_point() and not bool(torch.isfinite(told).all()):
            return f"told NaN or an infinite value besides its update ({name})"
    # A constant buffer may well hold an infinity, such as a mask's; one that became so in training may not.
    if len(update.buffers) and bool((~torch.isfinite(update.buffers) & torch.isfinite(start.buffers)).any()):
        return "sent NaN or an infinite value in its buffers"
    return None


def _server_step(
    algorithm: Algorithm, state: ServerState, planned: Plan, delta: Tensor, gathered: dict[str, Tensors]
) -> tuple[Tensor, State]:
    server, params = algorithm.server, {"model": state.model.vector}
    for exchange in algorithm.exchanges:
        server = server if exchange.steer is None else exchange.steer(server)
    rates = [torch.tensor(rate(planned.round), dtype=torch.float32) for rate in server.rates]
    rng = generator(planned.seed, "server noise", planned.round, planned.first_slot) if server.normals else None
    at = At(params, params, rates, draw_normals(rng, server.normals, params), given=gathered)
    step, optimiser = server.update({"model": -delta}, state.optimiser, at)
    return state.model.vector + step["model"], optimiser


def _retold(algorithm: Algorithm, announced: State, gathered: dict[str, Tensors]) -> State:
    after = dict(announced)
    for exchange in algorithm.exchanges:
        if exchange.retell is not None:
            before: Tensors = announced[exchange.name]  # type: ignore[assignment]
            after[exchange.name] = dict(exchange.retell(before, gathered[exchange.name]))
    return after
