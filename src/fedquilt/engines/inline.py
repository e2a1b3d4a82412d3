"""One client after the other in this process: the reference, and the one to debug with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from fedquilt.core.client import ClientUpdate, Fault
from fedquilt.core.engine import Engine, Session
from fedquilt.core.evaluation import Counted, Evaluation, chunks, combine, evaluation_failed
from fedquilt.core.federation import Federation, SplitName
from fedquilt.core.params import ModelState
from fedquilt.core.pinned import pinned
from fedquilt.core.plan import Plan
from fedquilt.core.state import ClientStore, ServerState
from fedquilt.errors import told
from fedquilt.registry import engines


@engines.register
def inline() -> Engine:
    """One client after the other in this process; for reference and debugging.

    >>> inline()
    InlineEngine()
    """
    return InlineEngine()


@dataclass(frozen=True)
class InlineEngine:
    """See `inline`."""

    @contextmanager
    def open(self, federation: Federation) -> Iterator[Session]:
        """Pin torch's settings for as long as the session lasts."""
        with pinned():
            yield InlineSession(federation)


@dataclass(frozen=True)
class InlineSession:
    """Runs clients as they come."""

    federation: Federation

    def run(self, planned: Plan, state: ServerState, store: ClientStore) -> Iterator[ClientUpdate | Fault]:
        """Run the plan's clients in the order of their slots."""
        for slot in planned.slots:
            client = planned.client_of[slot]
            yield self.federation.run_client(state, planned.round, client, slot, store.get(client))

    def evaluate(self, model: ModelState, split: SplitName) -> Evaluation:
        """Evaluate chunk by chunk."""
        rows = chunks(len(self.federation.split(split)))
        try:
            return combine([self.federation.evaluate(model, split, part) for part in rows])
        except Exception as error:
            raise evaluation_failed(told(error)) from error

    def evaluate_own(self, state: ServerState, clients: Sequence[int], store: ClientStore) -> list[Counted]:
        """Evaluate client by client."""
        try:
            return [self.federation.evaluate_own(state, state.round, client, store.get(client)) for client in clients]
        except Exception as error:
            raise evaluation_failed(told(error)) from error
