"""One client after the other in this process: the reference, and the one to debug with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fedquilt.core.client import ClientUpdate, Fault
from fedquilt.core.engine import Engine, Session
from fedquilt.core.evaluation import Evaluation, chunks, combine, evaluation_failed
from fedquilt.core.federation import Federation, SplitName
from fedquilt.core.params import ModelState
from fedquilt.core.pinned import pinned
from fedquilt.core.round import Plan
from fedquilt.core.state import ClientStore
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

    def run(self, planned: Plan, model: ModelState, store: ClientStore) -> Iterator[ClientUpdate | Fault]:
        """Run the plan's clients in the order of their slots."""
        for slot, client in enumerate(planned.clients.tolist()):
            yield self.federation.run_client(model, planned.round, client, slot, store.get(client))

    def evaluate(self, model: ModelState, split: SplitName) -> Evaluation:
        """Evaluate chunk by chunk."""
        rows = chunks(len(self.federation.split(split)))
        try:
            return combine([self.federation.evaluate(model, split, part) for part in rows])
        except Exception as error:
            raise evaluation_failed(told(error)) from error
