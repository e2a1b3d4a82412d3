"""One client after the other in this process: the reference, and the one to debug with."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from fedquilt.core.block import Program, warm_up
from fedquilt.core.engine import Engine, Measured, Pending, Session
from fedquilt.core.evaluation import Evaluation, chunks, combine, evaluation_failed
from fedquilt.core.execution import Compute, Execution
from fedquilt.core.federation import Federation, SplitName
from fedquilt.core.interrupts import noting_signals
from fedquilt.core.params import ModelState
from fedquilt.core.pinned import pinned
from fedquilt.core.place import Device, Place, Precision
from fedquilt.core.plan import Plan
from fedquilt.core.state import ClientStore, ServerState
from fedquilt.core.updates import Answer
from fedquilt.engines.executing import Executing
from fedquilt.errors import FedquiltError, told
from fedquilt.registry import engines


@engines.register
def inline(compute: Compute = "eager", precision: Precision = "float32", device: Device = "cpu") -> Engine:
    """One client after the other in this process; for reference and debugging.

    `compute = "compiled"` compiles the local step, several steps a call. `precision = "bf16"` runs the model under
    autocast. `device` is torch's: "cpu", "cuda" or "mps".

    >>> inline().execution
    Execution(block=1, compute='eager', place=Place(device='cpu', precision='float32'))
    """
    return InlineEngine(Execution(compute=compute, place=Place(device, precision)))


@dataclass(frozen=True)
class InlineEngine(Executing):
    """See `inline`."""

    @contextmanager
    def open(self, federation: Federation) -> Iterator[Session]:
        """Pin torch's settings for as long as the session lasts."""
        in_main = threading.current_thread() is threading.main_thread()
        if federation.client_seconds is not None and not (in_main and hasattr(signal, "setitimer")):
            raise FedquiltError(
                'run.client_seconds: the engine "inline" can stop a client in the main thread only, and on systems with '
                'timers; use "processes"'
            )
        with pinned(), noting_signals():
            federation = self.execution.placed(federation)
            program = self.execution.program(federation)
            if program is not None:
                warm_up(program, federation)
            yield InlineSession(federation, self.execution, program)


@dataclass(frozen=True)
class InlineSession:
    """Runs clients as they come."""

    federation: Federation
    execution: Execution
    program: Program | None

    def run(self, planned: Plan, state: ServerState, store: ClientStore) -> Iterator[Answer]:
        """Run the plan's clients in the order of their slots."""
        if self.program is not None:
            for slots in self.execution.blocks(planned):
                clients = [planned.client_of[slot] for slot in slots]
                kept = [store.get(client) for client in clients]
                yield from self.federation.run_block(self.program, state, planned.round, clients, slots, kept)
            return
        for slot in planned.slots:
            client = planned.client_of[slot]
            yield self.federation.run_client(state, planned.round, client, slot, store.get(client))

    def evaluate(self, model: ModelState, split: SplitName) -> Pending[Evaluation]:
        """Evaluate chunk by chunk, at once."""
        rows = chunks(len(self.federation.split(split)))
        try:
            found = combine([self.federation.evaluate(model, split, part) for part in rows], self.federation.metrics)
        except Exception as error:
            raise evaluation_failed(told(error)) from error
        return lambda: found

    def evaluate_own(self, state: ServerState, clients: Sequence[int], store: ClientStore) -> Pending[list[Measured]]:
        """Evaluate client by client, at once."""
        found = [self.federation.evaluate_own(state, state.round, client, store.get(client)) for client in clients]
        return lambda: found
