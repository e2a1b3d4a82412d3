"""The engine of a real federation: clients run at their sites, and Flower carries what is sent.

A round asks for more clients than it needs if it is told to, takes the first answers that can be used, waits for the others
until the deadline, and is committed if there are enough. An answer that comes later is never counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedquilt.algorithm.parts.selection import AskMore
from fedquilt.algorithm.state import ClientStore, ServerState
from fedquilt.algorithm.updates import Answer, ClientUpdate, Fault, one_by_one
from fedquilt.base.arguments import Count, NonNegative, Positive
from fedquilt.base.errors import FedquiltError, SpecError
from fedquilt.base.registry import engines
from fedquilt.compute.layout import ModelState
from fedquilt.compute.pinned import pinned
from fedquilt.engines.execution import Execution
from fedquilt.engines.flower.roster import Member
from fedquilt.engines.flower.sites import LOOK, Sites
from fedquilt.engines.scheduler import Answers
from fedquilt.engines.session import ScheduledSession, updates
from fedquilt.round.checks import Expected
from fedquilt.round.evaluation import Evaluation, SplitName
from fedquilt.round.federation import Federation
from fedquilt.round.merge import checked
from fedquilt.round.plan import Plan
from fedquilt.round.server import Server
from fedquilt.round.session import Engine, Measured, Pending, Session
from fedquilt.simulate.simulation import Simulation

if TYPE_CHECKING:
    from flwr.serverapp import Grid

DEADLINE = 600.0
"""Seconds that a site has for a task, unless `run.client_seconds` says otherwise: silence must not stop a run for ever."""


@engines.register
def flower(over_select: NonNegative = 0.0, least: Count = 1, attempts: Count = 3, poll: Positive = 0.5) -> Engine:
    """Real sites that keep their data, by Flower's deployment engine; `fedquilt deploy` starts it.

    - Sites have `run.client_seconds` for a task, 600 s unless that is set: the time to carry it counts.
    - With `over_select` the server asks (1 + `over_select`)·m clients, where the method asks m, and takes the first m
      answers that it can use. Which those are depends on who is fast: the result is then not the same in every run.
    - A round with fewer than `least` usable answers is not committed: those who did not answer are asked again, up to
      `attempts` times in all, and then the model stays as it was.
    - `poll` is how many seconds pass between looks for replies.

    >>> flower(least=2).least
    2
    """
    return FlowerEngine(over_select, least, attempts, poll)


@dataclass(frozen=True, eq=False)
class FlowerEngine:
    """See `flower`; `grid` and `roster` are there once a ServerApp runs it."""

    over_select: float
    least: int
    attempts: int
    poll: float
    grid: Grid | None = None
    roster: Sequence[Member] = ()
    look: float = LOOK

    def at(self, grid: Grid, roster: Sequence[Member]) -> FlowerEngine:
        """Return the engine with the way to its sites."""
        return replace(self, grid=grid, roster=tuple(roster))

    @property
    def simulation(self) -> Simulation:
        """What the server's view of a run has to say: that more clients are asked than the method needs."""
        return Simulation("flower", over_select=AskMore(self.over_select) if self.over_select else None)

    @contextmanager
    def open(self, federation: Federation | Server) -> Iterator[Session]:
        """Make ready to run a server's clients at their sites."""
        if self.grid is None:
            raise SpecError(
                'engine: "flower" runs clients at their own sites: start it with `fedquilt deploy run FOLDER`; '
                "`fedquilt run FOLDER` simulates the same federation"
            )
        server = federation.server
        if server.client_seconds is None:
            raise FedquiltError("a real federation needs a deadline: client_seconds is not set")
        with pinned():
            sites = Sites(self.grid, server, self.roster, self.poll, self.look)
            try:
                scheduled = ScheduledSession.on(sites, server, Execution(), evaluates_here=True)
                yield FlowerSession(scheduled, self.least, self.attempts)
            finally:
                sites.close()


@dataclass(frozen=True, eq=False)
class FlowerSession:
    """A session whose rounds end when enough sites have answered."""

    scheduled: ScheduledSession
    least: int
    attempts: int

    def run(self, planned: Plan, state: ServerState, store: ClientStore) -> Iterator[Answer]:
        """Begin to run a plan's clients, one task each."""
        begun = self.scheduled.begin(planned, state, store, [[slot] for slot in planned.slots])
        return self._enough(planned, state, store, begun)

    def _enough(self, planned: Plan, state: ServerState, store: ClientStore, begun: Answers) -> Iterator[Answer]:
        """Pass usable answers on once there are as many as the round needs at least, and faults at the end."""
        server = self.scheduled.server
        wanted = planned.wanted or len(planned.slots)
        least, late = min(self.least, wanted), f"was not among the first {wanted} to answer"
        expected = Expected.of(server.algorithm, server.layout, state, planned)
        usable, held, faults = 0, list[ClientUpdate](), dict[int, Fault]()
        for attempt in range(1, self.attempts + 1):
            for result in one_by_one(updates(begun)):
                answer = checked(result, expected)
                if isinstance(answer, ClientUpdate) and usable == wanted:
                    answer = Fault(answer.client, answer.slot, late, kind="too slow")
                if isinstance(answer, Fault):
                    faults[answer.slot] = answer
                    continue
                usable += 1
                held.append(answer)
                if usable >= least:
                    yield from held
                    held.clear()
                if usable == wanted:
                    begun.leave_out_rest(late)
            again = [slot for slot, fault in faults.items() if fault.kind in ("too slow", "absent", "died")]
            if usable >= least or not again or attempt == self.attempts:
                break
            for slot in again:
                del faults[slot]
                expected.answered.discard(slot)
            begun = self.scheduled.begin(planned, state, store, [[slot] for slot in again])
        reason = f"only {usable} of at least {least} answers came, so the round is not committed"
        yield from (Fault(update.client, update.slot, reason, kind="absent") for update in held)
        yield from faults.values()

    def evaluate(self, model: ModelState, split: SplitName) -> Pending[Evaluation]:
        """Evaluate a model at the server, on what the server has."""
        return self.scheduled.evaluate(model, split)

    def evaluate_clients(
        self, state: ServerState, clients: Sequence[int], store: ClientStore
    ) -> Pending[list[Measured]]:
        """Begin the per-client test, at the sites."""
        return self.scheduled.evaluate_clients(state, clients, store)
