"""A worker process: waits for a task, does it, answers. Large values go through shared memory, the rest is JSON."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from fedquilt.core.block import Program
from fedquilt.core.client import ClientUpdate, Fault
from fedquilt.core.evaluation import Counted
from fedquilt.core.execution import Execution
from fedquilt.core.federation import Federation
from fedquilt.core.params import ModelState
from fedquilt.core.pinned import pinned
from fedquilt.core.round import wrong_shape
from fedquilt.core.state import ServerState
from fedquilt.core.tensors import from_bytes, to_bytes
from fedquilt.core.transform import State
from fedquilt.core.updates import Answer, BlockUpdate
from fedquilt.engines.allocator import keep_freed_memory
from fedquilt.engines.shared import rows_of, write
from fedquilt.errors import told


@dataclass(frozen=True, eq=False)
class Desk:
    """What a worker shares with its parent: the models that are worked on, and two places for a block's results.

    Two, so that a worker can train its next client while the parent is still folding the last one's update.
    """

    models: tuple[ModelState, ...]
    results: tuple[ModelState, ModelState]


def work(
    federation: Federation,
    program: Program | None,
    execution: Execution,
    desk: Desk,
    pipe: Connection,
    greet: bool,
) -> None:
    """Do tasks until the pipe closes or the parent dies; with `greet`, as spawned ones, say first that work can begin."""
    # Ctrl-C and a lost connection reach the whole group: the parent decides what becomes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    keep_freed_memory()
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    if greet or federation.bench.place != execution.place:
        # What a spawned process is given, torch has put into memory that all of them share: they would train one model.
        federation = execution.placed(federation.apart() if greet else federation)
        program = execution.program(federation)
    if greet:
        pipe.send_bytes(b"ready")
    state = ServerState(0, desk.models[0], {}, federation.announced)
    with pinned():
        while True:
            try:
                task = json.loads(pipe.recv_bytes())
                state = replace(state, model=desk.models[task["model"]])
                if task["announced"]:
                    state = replace(state, announced=from_bytes(pipe.recv_bytes()))
                kept = from_bytes(pipe.recv_bytes()) if task["kept"] else {}
            except EOFError:
                return
            match task["do"]:
                case "train":
                    _train(federation, program, desk, pipe, task, state, kept)
                case "own":
                    _answer(pipe, _evaluate_own, federation, state, task["round"], task["clients"], kept)
                case _:
                    _answer(pipe, federation.evaluate, state.model, task["split"], (task["first"], task["last"]))


def _train(
    federation: Federation,
    program: Program | None,
    desk: Desk,
    pipe: Connection,
    task: dict[str, Any],
    state: ServerState,
    kept: State,
) -> None:
    round_, clients, slots = task["round"], task["clients"], task["slots"]
    memories: list[Any] = [kept.get(str(place)) for place in range(len(clients))]
    results: list[Answer]
    if program is None:
        results = [federation.run_client(state, round_, *each) for each in zip(clients, slots, memories, strict=True)]
    else:
        results = federation.run_block(program, state, round_, clients, slots, memories)
    answers: list[dict[str, Any]] = []
    more: dict[str, Any] = {}
    row, desk_rows = 0, desk.results[task["place"]]
    for result in results:
        if isinstance(result, BlockUpdate):
            write(rows_of(desk_rows, row, len(result)), result.values)
            answers.append(_columns(result))
            row += len(result)
            continue
        wrong = wrong_shape(result, federation.layout) if isinstance(result, ClientUpdate) else None
        who = {"client": result.client, "slot": result.slot}
        if isinstance(result, Fault) or wrong is not None:  # a wrong shape would not fit into the place for results
            answers.append(who | {"fault": wrong if isinstance(result, ClientUpdate) else result.reason})
            continue
        values = ModelState(result.delta, result.buffers, result.counters)
        write(rows_of(desk_rows, row, 1), values)
        said = {"weight": result.weight, "loss": result.loss, "steps": result.steps, "examples": result.examples}
        answers.append(who | said)
        besides = ({"keep": result.keep} if result.keep else {}) | ({"told": result.told} if result.told else {})
        more |= {str(row): besides} if besides else {}
        row += 1
    pipe.send_bytes(json.dumps({"answers": answers, "more": bool(more)}).encode())
    if more:
        pipe.send_bytes(to_bytes(more))


def _columns(block: BlockUpdate) -> dict[str, Any]:
    names = ("clients", "slots", "weights", "losses", "steps", "examples")
    return {name: list(getattr(block, name)) for name in names}


def _evaluate_own(
    federation: Federation, state: ServerState, round_: int, clients: list[int], kept: State
) -> list[Counted]:
    memories: list[Any] = [kept.get(str(place)) for place in range(len(clients))]
    return [federation.evaluate_own(state, round_, *each) for each in zip(clients, memories, strict=True)]


def _answer(pipe: Connection, evaluate: Callable[..., Counted | list[Counted]], *about: object) -> None:
    try:
        answer: object = evaluate(*about)
    except Exception as error:
        answer = {"error": told(error)}
    pipe.send_bytes(json.dumps(answer).encode())


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
