"""Doing a task: the same function in every worker, whatever carried the task there."""

from __future__ import annotations

from collections.abc import Callable

from fedquilt.algorithm.state import ServerState
from fedquilt.algorithm.updates import Answer, ClientUpdate, Fault
from fedquilt.base.errors import reason_of
from fedquilt.compute.tensors import to_bytes
from fedquilt.engines.encoding import ProtocolError
from fedquilt.engines.tasks import Reply, Task, TaskResult
from fedquilt.round.block import BlockProgram
from fedquilt.round.checks import Uploads, uploads_of, wrong_form
from fedquilt.round.hosting import SpoiledError
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
        return Reply(_trained(site, program, task, state, at))
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
) -> list[TaskResult]:
    uploads = uploads_of(site.algorithm, site.layout, state.broadcast)
    if program is not None and not task.alone:
        client_states = list(task.client_states)
        block = site.run_block(program, state, task.round, task.clients, task.slots, client_states, task.gone)
        return [_fit_to_send(result, site, uploads) for result in block]
    found: list[TaskResult] = []
    for index, who in enumerate(zip(task.clients, task.slots, task.client_states, strict=True)):
        at(index)
        result = _fit_to_send(site.run_client(state, task.round, *who), site, uploads)
        if task.alone and isinstance(result, ClientUpdate) and (result.client_state or result.extra_upload):
            # Written here already, so that it is known whose it is if that fails.
            to_bytes({"client_state": result.client_state or {}, "extra_upload": result.extra_upload})
        found.append(result)
    return found


def _fit_to_send(result: Answer, site: Site, uploads: Uploads) -> Answer:
    """Return a result, or the fault of a client whose update may not fit where it is sent, or not be memory at all."""
    if not isinstance(result, ClientUpdate):
        return result
    wrong = wrong_form(result, site.layout, uploads)
    return result if wrong is None else Fault(result.client, result.slot, wrong, kind="unusable update")
