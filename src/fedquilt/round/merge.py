"""A round is three functions: plan (in plan.py), client_update (in client.py), merge. None knows which engine runs it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.exact import WideMean
from fedquilt.algorithm.state import ServerState
from fedquilt.algorithm.transform import At
from fedquilt.algorithm.updates import (
    Answer,
    BlockFold,
    BlockUpdate,
    ClientUpdate,
    Fault,
    PartialSum,
    SummingFold,
    one_by_one,
)
from fedquilt.base.rng import generator
from fedquilt.compute.layout import Layout, ModelState, State, Tensors
from fedquilt.compute.tensors import flat
from fedquilt.round.checks import Expected
from fedquilt.round.plan import Plan
from fedquilt.round.training import draw_normals

LARGEST_LOSS = 2.0**200
"""A client's loss is not counted from here on; nor is one that is not a number. The sum must be one."""


@dataclass(frozen=True)
class Merged:
    """What a round did, apart from the model; `extra_bytes` counts the clients' extra uploads.

    `batches` is the largest number of batches that any of the clients ran, `gradients` the gradients of single examples
    that all of them computed: whatever they trained counts.
    """

    clients: list[int]
    faults: list[Fault]
    loss: float | None
    steps: int
    examples: int
    batches: int
    gradients: int
    extra_bytes: int
    client_states: dict[int, State] = field(default_factory=dict)


def merge(
    algorithm: Algorithm,
    layout: Layout,
    state: ServerState,
    planned: Plan,
    results: Iterable[Answer],
    seen: Callable[[ClientUpdate], None] | None = None,
) -> tuple[ServerState, Merged]:
    """Fold the clients' updates, in whatever order they come, into the next state; `seen` is shown those that count.

    A client that failed or sent something unusable is left out and named; the weights are over the others. If nobody is
    left the model, the server's optimiser and the broadcast stay as they were.
    """
    cohort = planned.cohort(layout.size)
    deltas = algorithm.reduce(cohort)
    gathers = {e.name: e.gather(cohort) for e in algorithm.exchanges if e.gather is not None}
    buffers = WideMean(layout.buffer_size)
    counters = state.model.counters.clone()
    expected = Expected.of(algorithm, layout, state, planned)
    absent = [(planned.client_of[slot], slot, why) for slot, why in planned.absent.items()]
    tally = Tally([Fault(*about, simulated=True, kind="absent") for about in absent])
    singly = taken_singly(algorithm, layout) or seen is not None
    at_once = deltas.add_block if isinstance(deltas, BlockFold) and not singly else None
    for answer in results:
        if isinstance(answer, PartialSum):
            assert isinstance(deltas, SummingFold)
            assert not singly
            wrong = expected.wrong_sum(answer)
            if wrong is None:
                deltas.add_sum(answer)
                tally.take(answer)
            else:
                asked = zip(answer.clients, answer.slots, strict=True)
                tally.faults += [Fault(*who, wrong, kind="unusable update") for who in asked]
            expected.answered.update(answer.slots)
            continue
        if isinstance(answer, BlockUpdate) and at_once is not None and expected.all_usable(answer):
            at_once(answer)
            tally.take(answer)
            expected.answered.update(answer.slots)
            continue
        for result in one_by_one([answer]):
            update = checked(result, expected)
            if isinstance(update, Fault):
                tally.faults.append(update)
                continue
            deltas.add(update)
            for gather in gathers.values():
                gather.add(update)
            if layout.buffer_size:
                buffers.add(update.slot, update.buffers, update.weight)
            if layout.counter_size:
                torch.maximum(counters, update.counters, out=counters)
            tally.take_one(update)
            if seen is not None:
                seen(update)
    silent = expected.client_of.keys() - expected.answered
    tally.faults += [Fault(expected.client_of[slot], slot, "did not answer") for slot in silent]
    report = tally.report()
    delta = deltas.finish()
    if delta is None:
        return ServerState(planned.round, state.model, state.optimiser, state.broadcast), report
    gathered = {name: gather.finish() for name, gather in gathers.items()}
    buffer = buffers.finish() if layout.buffer_size else state.model.buffers
    vector, optimiser = _server_step(algorithm, state, planned, delta, gathered)
    broadcast = _next_broadcast(algorithm, state.broadcast, gathered)
    return ServerState(planned.round, ModelState(vector, buffer, counters), optimiser, broadcast), report


def taken_singly(algorithm: Algorithm, layout: Layout) -> bool:
    """Say whether something besides the model's parameters is taken from every client by itself."""
    gathers = any(exchange.gather is not None for exchange in algorithm.exchanges)
    return gathers or bool(layout.buffer_size or layout.counter_size)


@dataclass(eq=False)
class Tally:
    """Counts what was taken in, in columns: a cohort may have thousands of clients."""

    faults: list[Fault]
    batches: int = 0
    more_gradients: int = 0
    extra_bytes: int = 0
    client_states: dict[int, State] = field(default_factory=dict)
    _rows: list[tuple[int, int, float, int, int]] = field(default_factory=list)

    def take_one(self, update: ClientUpdate) -> None:
        """Count one client's update."""
        self._rows.append((update.slot, update.client, update.loss, update.steps, update.examples))
        self.batches = max(self.batches, update.steps + update.more_batches)
        self.more_gradients += update.more_gradients
        self.extra_bytes += sum(tensor.nbytes for _, tensor in flat(update.extra_upload)) if update.extra_upload else 0
        if update.client_state is not None:
            self.client_states[update.client] = update.client_state

    def take(self, block: BlockUpdate | PartialSum) -> None:
        """Count the updates of a block, or of a sum."""
        self._rows.extend(zip(block.slots, block.clients, block.losses, block.steps, block.examples, strict=True))
        self.batches = max(self.batches, *block.steps)

    def report(self) -> Merged:
        """Say what was counted, in the order of the slots."""
        rows = sorted(self._rows)
        heard = [(loss, examples) for _, _, loss, _, examples in rows if abs(loss) < LARGEST_LOSS]
        seen, examples = sum(count for _, count in heard), sum(count for *_, count in rows)
        return Merged(
            clients=[client for _, client, *_ in rows],
            faults=sorted(self.faults, key=lambda fault: fault.slot),
            loss=math.fsum(loss * count for loss, count in heard) / seen if seen else None,
            steps=sum(steps for *_, steps, _ in rows),
            examples=examples,
            batches=self.batches,
            gradients=examples + self.more_gradients,
            extra_bytes=self.extra_bytes,
            client_states={
                client: self.client_states[client] for _, client, *_ in rows if client in self.client_states
            },
        )


def checked(result: ClientUpdate | Fault, expected: Expected) -> ClientUpdate | Fault:
    """Return a client's answer, or its fault if it cannot be used; whoever answered counts as heard."""
    if isinstance(result, Fault):
        expected.answered.add(result.slot)
        return result
    misfit = expected.misfit_of(result)
    overflow = None if misfit else expected.overflow_in(result)
    if (
        expected.client_of.get(result.slot) == result.client
    ):  # else the slot is another's, whose answer is still to come
        expected.answered.add(result.slot)
    if misfit is not None:
        return Fault(result.client, result.slot, misfit, kind="unusable update")
    return result if overflow is None else Fault(result.client, result.slot, overflow, kind="overflow")


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


def _next_broadcast(algorithm: Algorithm, broadcast: State, gathered: dict[str, Tensors]) -> State:
    after = dict(broadcast)
    for exchange in algorithm.exchanges:
        if exchange.next_broadcast is not None:
            before: Tensors = broadcast[exchange.name]  # type: ignore[assignment]
            after[exchange.name] = dict(exchange.next_broadcast(before, gathered[exchange.name]))
    return after
