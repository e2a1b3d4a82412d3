"""Doing a task: the same function in every worker, whatever carried the task there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from fedquilt.algorithm.state import ServerState
from fedquilt.algorithm.updates import Answer, ClientUpdate, Fault
from fedquilt.base.errors import reason_of
from fedquilt.compute.layout import State
from fedquilt.compute.tensors import to_bytes
from fedquilt.engines.encoding import ProtocolError
from fedquilt.engines.tasks import Reply, Sums, Task, TaskResult
from fedquilt.round.block import BlockProgram
from fedquilt.round.checks import Expected, Uploads, uploads_of, wrong_form
from fedquilt.round.hosting import SpoiledError
from fedquilt.round.partial import summed
from fedquilt.round.site import Site


def perform(
    site: Site,
    program: BlockProgram | None,
    task: Task,
    state: ServerState,
    at: Callable[[int], None] = lambda index: None,
) -> Reply:
    """Do a task at a site, on a server's model and what it broadcasts; a client that fails is in the reply as a fault.

    `program` trains blocks; without one, clients are trained one by one, and `at` is called with the index of each. A
    SpoiledError is raised: after it the process is of no use to other clients; so is a ProtocolError if the run has no such
    client.
    """
    unknown = [
        client for client in (*task.clients, *(client for _, client in task.gone)) if client >= len(site.partition)
    ]
    if unknown:
        raise ProtocolError(f"its task is for client {unknown[0]}, but the run has {len(site.partition)} clients")
    if task.do == "train":
        trained = _trained(site, program, task, state, at)
        return Reply(list(trained) if task.sums is None else _summed(site, task.sums, task, state, trained))
    try:
        if task.do == "evaluate":
            return Reply([site.evaluator.evaluate(state.model, task.split, task.rows)])
        found: list[TaskResult] = []
        for index, (client, client_state) in enumerate(zip(task.clients, task.client_states, strict=True)):
            at(index)
            found.append(site.evaluate_clients(state, task.round, client, client_state))
        return Reply(found)
    except SpoiledError:
        raise
    except Exception as error:
        return Reply([], reason_of(error))


def _trained(
    site: Site, program: BlockProgram | None, task: Task, state: ServerState, at: Callable[[int], None]
) -> Iterator[Answer]:
    uploads = uploads_of(site.algorithm, site.layout, state.broadcast)
    if program is not None and not task.alone:
        for rows, gone in _blocks(task):
            clients, slots, client_states = zip(*rows, strict=True)
            for result in site.run_block(program, state, task.round, clients, slots, client_states, gone):
                yield _fit_to_send(result, site, uploads)
        return
    for index, who in enumerate(zip(task.clients, task.slots, task.client_states, strict=True)):
        at(index)
        result = _fit_to_send(site.run_client(state, task.round, *who), site, uploads)
        if task.alone and isinstance(result, ClientUpdate) and (result.client_state or result.extra_upload):
            # Written here already, so that it is known whose it is if that fails.
            to_bytes({"client_state": result.client_state or {}, "extra_upload": result.extra_upload})
        yield result


def _blocks(task: Task) -> Iterator[tuple[list[tuple[int, int, State | None]], list[tuple[int, int]]]]:
    """Cut a task into its blocks: the clients of each, and who is gone from it. Where a client stood decides the bits."""
    gone, rest = dict(task.gone), zip(task.clients, task.slots, task.client_states, strict=True)
    total = len(task.clients) + len(gone)
    for first in range(0, total, task.block):
        places = range(first, min(first + task.block, total))
        rows = [next(rest) for place in places if place not in gone]
        if rows:
            yield rows, [(place - first, gone[place]) for place in places if place in gone]


def _summed(site: Site, sums: Sums, task: Task, state: ServerState, trained: Iterable[Answer]) -> Sequence[TaskResult]:
    """Answer with one sum for all whose updates can be summed."""
    client_of = dict(zip(task.slots, task.clients, strict=True))
    uploads = uploads_of(site.algorithm, site.layout, state.broadcast)
    expected = Expected(site.layout, state.model, client_of, sums.weights, uploads)
    return summed(site.algorithm, sums.cohort, expected, trained)


def _fit_to_send(result: Answer, site: Site, uploads: Uploads) -> Answer:
    """Return a result, or the fault of a client whose update may not fit where it is sent, or not be memory at all."""
    if not isinstance(result, ClientUpdate):
        return result
    wrong = wrong_form(result, site.layout, uploads)
    return result if wrong is None else Fault(result.client, result.slot, wrong, kind="unusable update")
