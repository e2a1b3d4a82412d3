"""A session on any transport: plans and evaluations become tasks for a scheduler, and its answers become results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fedquilt.algorithm.state import ClientStore, ServerState
from fedquilt.algorithm.updates import Answer, Fault
from fedquilt.compute.layout import ModelState
from fedquilt.engines.execution import Execution
from fedquilt.engines.scheduler import Answers, Done, Scheduler
from fedquilt.engines.tasks import Task
from fedquilt.engines.transport import Transport
from fedquilt.round.evaluation import Counted, Evaluation, SplitName, chunks, combine, evaluation_failed
from fedquilt.round.plan import Plan
from fedquilt.round.server import Server
from fedquilt.round.session import Measured, Pending

CLIENTS_PER_TASK, TASKS_PER_LANE = 64, 8
"""Most clients in one task of a per-client test; fewest tasks of a lane, if there are enough clients."""


@dataclass(frozen=True, eq=False)
class ScheduledSession:
    """Has a server's clients run by the lanes of a transport; it needs nothing but the server's view of the run.

    Lanes evaluate models too, unless `evaluates_here`: then that is done in this process, on what the server has, for lanes
    that hold clients' examples and nothing else.
    """

    server: Server
    execution: Execution
    scheduler: Scheduler
    evaluates_here: bool = False

    @classmethod
    def on(
        cls, transport: Transport, server: Server, execution: Execution, evaluates_here: bool = False
    ) -> ScheduledSession:
        """Schedule a server's work on a transport. How long clients may take is watched from here."""
        return cls(server, execution, Scheduler(transport, server.client_seconds), evaluates_here)

    def run(self, planned: Plan, state: ServerState, store: ClientStore) -> Iterator[Answer]:
        """Begin to run the plan's clients, the largest first."""
        return updates(self.begin(planned, state, store, self.execution.blocks(planned)))

    def begin(self, planned: Plan, state: ServerState, store: ClientStore, blocks: Iterable[Sequence[int]]) -> Answers:
        """Begin to run the clients in some slots of a plan, block by block."""
        tasks = []
        for slots in blocks:
            clients = [planned.client_of[slot] for slot in slots]
            tasks.append(Task("train", planned.round, clients, slots, [store.get(client) for client in clients]))
        return self.scheduler.begin(state.model, tasks, state.broadcast)

    def evaluate(self, model: ModelState, split: SplitName) -> Pending[Evaluation]:
        """Begin to evaluate the chunks of a split."""
        rows = chunks(self.server.split_size(split))
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
