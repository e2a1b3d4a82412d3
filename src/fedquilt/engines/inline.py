"""One client after the other in this process: the reference, and the one to debug with."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fedquilt.algorithm.state import ClientStore, ServerState
from fedquilt.algorithm.updates import Answer
from fedquilt.base.arguments import Size
from fedquilt.base.errors import FedquiltError
from fedquilt.base.registry import engines
from fedquilt.compute.device import Device, Placement, Precision
from fedquilt.compute.interrupts import noting_signals
from fedquilt.compute.layout import ModelState
from fedquilt.compute.pinned import pinned
from fedquilt.engines.executing import Executing
from fedquilt.engines.execution import Compute, Execution
from fedquilt.round.block import BlockProgram
from fedquilt.round.evaluation import Evaluation, SplitName
from fedquilt.round.federation import Federation
from fedquilt.round.plan import Plan
from fedquilt.round.session import Engine, Measured, Pending, Session
from fedquilt.round.site import Site
from fedquilt.round.warm_up import warm_up


@engines.register
def inline(
    compute: Compute = "eager", precision: Precision = "float32", device: Device = "cpu", block: Size = 1
) -> Engine:
    """One client after the other in this process; for reference and debugging.

    `compute = "compiled"` compiles the local step, several steps per call. `precision = "bf16"` runs the model under
    autocast. `device` is torch's: "cpu", "cuda" or "mps". With a `block`, so many clients are trained at once, as
    `vectorised` does.

    >>> inline().execution
    Execution(block=1, compute='eager', placement=Placement(device='cpu', precision='float32'))
    """
    return InlineEngine(Execution(block, compute, Placement(device, precision)))


@dataclass(frozen=True)
class InlineEngine(Executing):
    """See `inline`."""

    @property
    def table(self) -> dict[str, Any]:
        """Return what a spec's `[engine]` says of it."""
        return {"name": "inline"} | self._arguments()

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
            site = self.execution.placed(federation.site)
            program = self.execution.program(site)
            if program is not None:
                warm_up(program, site, federation.start().groups[0].state)
            yield InlineSession(site, self.execution, program)


@dataclass(frozen=True)
class InlineSession:
    """Runs clients as they come."""

    site: Site
    execution: Execution
    program: BlockProgram | None

    def run(self, planned: Plan, state: ServerState, store: ClientStore) -> Iterator[Answer]:
        """Run the plan's clients in the order of their slots."""
        if self.program is not None:
            for slots in self.execution.blocks(planned):
                clients = [planned.client_of[slot] for slot in slots]
                client_states = [store.get(client) for client in clients]
                yield from self.site.run_block(self.program, state, planned.round, clients, slots, client_states)
            return
        for slot in planned.slots:
            client = planned.client_of[slot]
            yield self.site.run_client(state, planned.round, client, slot, store.get(client))

    def evaluate(self, model: ModelState, split: SplitName) -> Pending[Evaluation]:
        """Evaluate chunk by chunk, at once."""
        found = self.site.evaluator.evaluate_all(model, split)
        return lambda: found

    def evaluate_clients(
        self, state: ServerState, clients: Sequence[int], store: ClientStore
    ) -> Pending[list[Measured]]:
        """Evaluate client by client, at once."""
        found = [self.site.evaluate_clients(state, state.round, client, store.get(client)) for client in clients]
        return lambda: found
