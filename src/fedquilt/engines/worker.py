"""A worker process: waits for a task, does it, answers. Large values go through shared memory, the rest is JSON."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from torch import Tensor

from fedquilt.core.block import Program, warm_up
from fedquilt.core.checks import uploads_of, wrong_form
from fedquilt.core.client import Fault
from fedquilt.core.evaluation import Counted
from fedquilt.core.execution import Execution
from fedquilt.core.federation import Federation
from fedquilt.core.hosting import SpoiledError
from fedquilt.core.interrupts import noting_signals
from fedquilt.core.params import ModelState
from fedquilt.core.pinned import pinned
from fedquilt.core.state import ServerState
from fedquilt.core.tensors import from_bytes, to_bytes
from fedquilt.core.transform import State
from fedquilt.core.updates import Answer, BlockUpdate
from fedquilt.engines.allocator import keep_freed_memory
from fedquilt.engines.frames import Channel, ProtocolError
from fedquilt.engines.shared import rows_of, write
from fedquilt.errors import told

SPOILED = 90
"""The exit code of a worker that a client has changed for good."""


@dataclass(frozen=True, eq=False)
class Desk:
    """What a worker shares with its parent: the models that are worked on, and two places for a block's results.

    Two, so that a worker can train its next client while the parent is still folding the last one's update. `at` is the
    place, among the clients of a task that are trained one by one, of the one that is trained now.
    """

    models: tuple[ModelState, ...]
    results: tuple[ModelState, ModelState]
    at: Tensor


def work(
    federation: Federation,
    program: Program | None,
    execution: Execution,
    desk: Desk,
    channel: Channel,
    inherited: Sequence[Connection],
    greet: bool,
    timed: bool,
) -> None:
    """Do tasks until the pipe closes or the parent dies; with `greet`, as spawned ones, say first that work can begin.

    `inherited` are the parent's own ends of pipes, which a forked process has no business with; `timed` says that clients'
    time is limited, and must not be spent on compiling.
    """
    # Ctrl-C and a lost connection reach the whole group: the parent decides what becomes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for pipe in inherited:
        pipe.close()
    keep_freed_memory()
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    if greet or federation.bench.place != execution.place:
        # What a spawned process is given, torch has put into memory that all of them share: they would train one model.
        federation = execution.placed(federation.apart() if greet else federation)
        program = execution.program(federation)
    with pinned(), noting_signals():
        if program is not None and greet and timed:
            warm_up(program, federation)
        if greet:
            channel.send(b"ready")
        try:
            _work(federation, program, desk, channel)
        except (EOFError, OSError, ProtocolError):  # the parent is gone, or a client has closed or disturbed the pipe
            os._exit(1)
        except SpoiledError:
            os._exit(SPOILED)


def _work(federation: Federation, program: Program | None, desk: Desk, channel: Channel) -> None:
    state = ServerState(0, desk.models[0], {}, federation.announced)
    while True:
        task = json.loads(channel.receive())
        state = replace(state, model=desk.models[task["model"]])
        if task["announced"]:
            state = replace(state, announced=from_bytes(channel.receive()))
        kept = from_bytes(channel.receive()) if task["kept"] else {}
        match task["do"]:
            case "train":
                _train(federation, program, desk, channel, task, state, kept)
            case "own":
                _answer(channel, _evaluate_own, federation, desk, state, task["round"], task["clients"], kept)
            case _:
                _answer(channel, federation.evaluate, state.model, task["split"], (task["first"], task["last"]))


def _train(
    federation: Federation,
    program: Program | None,
    desk: Desk,
    channel: Channel,
    task: dict[str, Any],
    state: ServerState,
    kept: State,
) -> None:
    round_, clients, slots = task["round"], task["clients"], task["slots"]
    memories: list[Any] = [kept.get(str(place)) for place in range(len(clients))]
    results: list[Answer] = []
    if program is None or task["alone"]:
        for place, each in enumerate(zip(clients, slots, memories, strict=True)):
            desk.at[0] = place
            results.append(federation.run_client(state, round_, *each))
    else:
        results = federation.run_block(program, state, round_, clients, slots, memories)
    answers: list[dict[str, Any]] = []
    more: dict[str, Any] = {}
    row, desk_rows = 0, desk.results[task["place"]]
    uploads = uploads_of(federation.algorithm, federation.layout, state.announced)
    for result in results:
        if isinstance(result, BlockUpdate):
            write(rows_of(desk_rows, row, len(result)), result.values)
            answers.append(_columns(result))
            row += len(result)
            continue
        who = {"client": result.client, "slot": result.slot}
        if isinstance(result, Fault):
            answers.append(who | {"fault": result.reason, "kind": result.kind})
            continue
        wrong = wrong_form(result, federation.layout, uploads)
        if wrong is not None:  # it may not fit into the place for results, or not be memory at all
            answers.append(who | {"fault": wrong, "kind": "unusable update"})
            continue
        values = ModelState(result.delta, result.buffers, result.counters)
        write(rows_of(desk_rows, row, 1), values)
        said = {"weight": result.weight, "loss": result.loss, "steps": result.steps, "examples": result.examples}
        answers.append(who | said)
        besides = ({"keep": result.keep} if result.keep else {}) | ({"told": result.told} if result.told else {})
        more |= {str(row): besides} if besides else {}
        row += 1
    channel.send(json.dumps({"answers": answers, "more": bool(more)}).encode())
    if more:
        channel.send(to_bytes(more))


def _columns(block: BlockUpdate) -> dict[str, Any]:
    names = ("clients", "slots", "weights", "losses", "steps", "examples")
    return {name: list(getattr(block, name)) for name in names}


def _evaluate_own(
    federation: Federation, desk: Desk, state: ServerState, round_: int, clients: list[int], kept: State
) -> list[Counted | dict[str, str]]:
    memories: list[Any] = [kept.get(str(place)) for place in range(len(clients))]
    found: list[Counted | dict[str, str]] = []
    for place, each in enumerate(zip(clients, memories, strict=True)):
        desk.at[0] = place
        counted = federation.evaluate_own(state, round_, *each)
        found.append({"fault": counted.reason, "kind": counted.kind} if isinstance(counted, Fault) else counted)
    return found


def _answer(channel: Channel, evaluate: Callable[..., object], *about: object) -> None:
    try:
        answer = evaluate(*about)
    except SpoiledError:
        raise
    except Exception as error:
        answer = {"error": told(error)}
    channel.send(json.dumps(answer).encode())


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
