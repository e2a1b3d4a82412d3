"""Round functions: which clients are planned, trained and merged together.

A round function has two halves: it plans and starts the clients, and it returns a function that ends the round. In
between, while clients are at work, the round before is reported.

The usual one runs a round in every group of clients; with one group, that is a round of plain federated learning. A method
with another round function brings a short program over the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.state import ClientStore, Group, RunState, ServerState
from fedquilt.algorithm.updates import Answer, BlockUpdate, ClientUpdate, PartialSum
from fedquilt.compute.layout import ModelState, Tensors
from fedquilt.round.merge import Merged, merge
from fedquilt.round.partial import summable
from fedquilt.round.plan import Plan, plan
from fedquilt.round.server import Server
from fedquilt.round.server_data import train_at_server
from fedquilt.round.session import Pending, Session

Heard = Callable[[int, int], None]
"""(clients heard from in this round, clients of the round)."""


@dataclass(frozen=True, eq=False)
class Work:
    """What a round function works with; `heard` is called with the round's progress, `observe` with every usable update."""

    server: Server
    session: Session
    heard: Heard | None = None
    observe: Callable[[ModelState, ClientUpdate], None] | None = None


@dataclass(frozen=True, eq=False)
class Step:
    """One group's round: the plan, what became of it, and the server's state before it."""

    planned: Plan
    merged: Merged
    before: ServerState
    after: ServerState

    @property
    def applied(self) -> bool:
        """Whether the model changed."""
        return self.after.model is not self.before.model


Ended = tuple[RunState, list[Step]]


def every_group(work: Work, run: RunState) -> Pending[Ended]:
    """Begin a round in every group; the groups share the workers."""
    server, plans, slot = work.server, list[Plan](), 0
    for number, group in enumerate(run.groups):
        plans.append(
            plan(
                server.algorithm,
                group,
                server.population,
                server.seed,
                number,
                slot,
                server.simulation,
            )
        )
        slot += len(plans[-1].clients)
    plans = [replace(planned, sums=summable(server, planned, work.observe is not None)) for planned in plans]
    begun = [
        (group.state, planned, work.session.run(planned, group.state, run.store))
        for group, planned in zip(run.groups, plans, strict=True)
    ]

    def end() -> Ended:
        steps, store, done, total = list[Step](), run.store, 0, sum(len(planned.slots) for planned in plans)
        for state, planned, answers in begun:
            step, store = merged(work, state, planned, store, listened(work, answers, done, total))
            steps.append(step)
            done += len(planned.slots)
        groups = tuple(Group(step.after, group.clients) for step, group in zip(steps, run.groups, strict=True))
        return RunState(groups, store), steps

    return end


def merged(
    work: Work, state: ServerState, planned: Plan, store: ClientStore, results: Iterable[Answer]
) -> tuple[Step, ClientStore]:
    """Merge a group's updates, let the server train on its own data, and store the clients' state."""
    server = work.server
    seen = None if work.observe is None else partial(work.observe, state.model)
    after, report = merge(server.algorithm, server.layout, state, planned, results, seen)
    if after.model is not state.model:
        after = train_at_server(server, after)
    return Step(planned, report, state, after), store.updated(report.client_states)


def listened(work: Work, results: Iterable[Answer], done: int, total: int) -> Iterator[Answer]:
    """Pass results on, and report how many there are."""
    for result in results:
        yield result
        done += len(result) if isinstance(result, BlockUpdate | PartialSum) else 1
        if work.heard is not None:
            work.heard(done, total)


def regrouped(algorithm: Algorithm, state: ServerState, members: Sequence[int], store: ClientStore) -> ServerState:
    """Return the state with which a new group of clients continues."""
    for exchange in algorithm.exchanges:
        if exchange.regroup is not None:
            client_states: list[Tensors | None] = [
                (store.get(client) or {}).get(exchange.name)  # type: ignore[misc]
                for client in members
            ]
            state = exchange.regroup(state, members, client_states)
    return state
