"""A session on any transport: plans and evaluations become tasks for a scheduler, and its answers become results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedquilt.algorithm.state import ClientStore, ServerState
from fedquilt.algorithm.updates import Answer, Fault
from fedquilt.compute.layout import ModelState
from fedquilt.engines.execution import Execution
from fedquilt.engines.grouping import WORTH_SUMMING, Grouping
from fedquilt.engines.scheduler import Answers, Done, Scheduler
from fedquilt.engines.tasks import Sums, Task
from fedquilt.engines.transport import Transport
from fedquilt.round.evaluation import Counted, Evaluation, SplitName, chunks, combine, evaluation_failed
from fedquilt.round.plan import Plan, weights_by_size
from fedquilt.round.server import Server
from fedquilt.round.session import Measured, Pending

CLIENTS_PER_TASK, TASKS_PER_LANE = 64, 8
"""Most clients in one task of a per-client test; fewest tasks of a lane, if there are enough clients."""


@dataclass(frozen=True, eq=False)
class ScheduledSession:
    """Has a server's clients run by the lanes of a transport; it needs nothing but the server's view of the run.

    Lanes evaluate models too, unless `evaluates_here`: then that is done in this process, on what the server has, for lanes
    that hold clients' examples and nothing else. Where a task takes long to give, `grouping` puts several clients into one;
    with `sums`, lanes add up the updates of a task's clients, where nothing needs single ones.
    `about` is what is recorded of the place with the run.
    """

    server: Server
    execution: Execution
    scheduler: Scheduler
    evaluates_here: bool = False
    grouping: Grouping | None = None
    sums: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def on(
        cls,
        transport: Transport,
        server: Server,
        execution: Execution,
        evaluates_here: bool = False,
        grouping: Grouping | None = None,
        sums: bool = False,
        about: Mapping[str, Any] | None = None,
    ) -> ScheduledSession:
        """Schedule a server's work on a transport. How long clients may take is watched from here."""
        scheduler = Scheduler(transport, server.client_seconds)
        return cls(server, execution, scheduler, evaluates_here, grouping, sums, about or {})

    def run(self, planned: Plan, state: ServerState, store: ClientStore) -> Iterator[Answer]:
        """Begin to run the plan's clients, the largest first."""
        blocks, sums = self.execution.blocks(planned, len(self.scheduler.lanes)), self._sums(planned)
        if self.grouping is not None:
            blocks = self.grouping.grouped(blocks, len(self.scheduler.lanes), sums is not None)
        return updates(self._noted(self.begin(planned, state, store, blocks, sums)))

    def begin(
        self,
        planned: Plan,
        state: ServerState,
        store: ClientStore,
        groups: Iterable[Sequence[int]],
        sums: Sums | None = None,
    ) -> Answers:
        """Begin to run the clients in some slots of a plan, a task for each group of them."""
        tasks = []
        for slots in groups:
            clients = [planned.client_of[slot] for slot in slots]
            client_states = [store.get(client) for client in clients]
            worth = sums if len(slots) >= WORTH_SUMMING else None
            block = self.execution.block
            tasks.append(Task("train", planned.round, clients, slots, client_states, block=block, sums=worth))
        return self.scheduler.begin(state.model, tasks, state.broadcast)

    def _noted(self, done: Iterable[Done]) -> Iterator[Done]:
        """Learn from tasks how much to put into the next ones."""
        for piece in done:
            if self.grouping is not None and piece.seconds is not None:
                self.grouping.note(len(piece.task.clients), piece.seconds)
            yield piece

    def _sums(self, planned: Plan) -> Sums | None:
        """Return what lanes need to sum updates, if they may."""
        if not (self.sums and planned.sums):
            return None
        by_size = weights_by_size(self.server.algorithm, planned.sizes)
        weights = {slot: by_size[planned.size_of(slot)] for slot in planned.slots}
        return Sums(planned.cohort(self.server.layout.size), weights)

    def evaluate(self, model: ModelState, split: SplitName) -> Pending[Evaluation]:
        """Begin to evaluate the chunks of a split."""
        rows = chunks(self.server.split_size(split), self.server.data.predictions)
        if self.evaluates_here:
            found = self.server.evaluator.evaluate_all(model, split)
            return lambda: found
        done = self.scheduler.begin(model, [Task("evaluate", split=split, rows=part) for part in rows])

        def wait() -> Evaluation:
            pieces = sorted(_evaluated(done), key=lambda piece: piece.number)
            counted = [each for piece in pieces for each in piece.reply.results if isinstance(each, Counted)]
            return combine(counted, self.server.metrics)

        return wait

    def evaluate_clients(
        self, state: ServerState, clients: Sequence[int], store: ClientStore
    ) -> Pending[list[Measured]]:
        """Begin the per-client test: several clients per task, since sending a task takes as long as a few examples."""
        client_states = [store.get(client) for client in clients]
        # Client state may be as large as the model; and every lane should have several tasks, to share well.
        least = TASKS_PER_LANE * max(len(self.scheduler.lanes), 1)
        # A lane that holds clients' examples and nothing else can do the tasks of its own clients only.
        most = 1 if any(client_states) or self.evaluates_here else min(CLIENTS_PER_TASK, max(len(clients) // least, 1))
        tasks = []
        for some in (slice(first, first + most) for first in range(0, len(clients), most)):
            asked = list(clients[some])
            tasks.append(Task("evaluate clients", state.round, asked, asked, client_states[some], alone=True))
        done = self.scheduler.begin(state.model, tasks, state.broadcast)
        return lambda: _measured(clients, _evaluated(done))


def updates(done: Iterable[Done]) -> Iterator[Answer]:
    """Return what came of the clients of tasks: updates, and the faults of those who were left out."""
    for piece in done:
        yield from piece.faults
        for result in piece.reply.results:
            assert not isinstance(result, Counted)
            yield result


def _evaluated(done: Iterable[Done]) -> Iterator[Done]:
    for piece in done:
        if piece.reply.error is not None:
            raise evaluation_failed(piece.reply.error)
        yield piece


def _measured(clients: Sequence[int], done: Iterable[Done]) -> list[Measured]:
    """Return what is known of each client; the clients of a task that is done are those who were not left out of it."""
    found: dict[int, Measured] = {}
    for piece in done:
        found |= {fault.client: fault for fault in piece.faults}
        for client, each in zip(piece.task.clients, piece.reply.results, strict=True):
            assert isinstance(each, Counted | Fault)
            found[client] = each
    return [found[client] for client in clients]
