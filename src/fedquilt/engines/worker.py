"""A worker process: waits for a task, does it, answers. Models go through shared memory, the rest through a pipe."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from torch import Tensor

from fedquilt.algorithm.state import ServerState
from fedquilt.base.interrupts import SIGNALS
from fedquilt.compute.interrupts import noting_signals
from fedquilt.compute.layout import ModelState
from fedquilt.compute.pinned import pinned
from fedquilt.engines.allocator import keep_freed_memory
from fedquilt.engines.encoding import ProtocolError, decode_task, encode_reply, read, read_tensors
from fedquilt.engines.execution import Execution
from fedquilt.engines.frames import Channel
from fedquilt.engines.perform import perform
from fedquilt.round.block import BlockProgram
from fedquilt.round.hosting import SpoiledError
from fedquilt.round.site import Site
from fedquilt.round.views import apart
from fedquilt.round.warm_up import warm_up

SPOILED = 90
"""The exit code of a worker that a client has changed for good."""


@dataclass(frozen=True, eq=False)
class SharedMemory:
    """What a worker shares with its parent: the models that are worked on, and two buffers for a block's results.

    Two, so that a worker can train its next client while the parent is still folding the last one's update. `at` is the
    index, among the clients of a task that are trained one by one, of the one that is trained, or answered for, now.
    """

    models: tuple[ModelState, ...]
    results: tuple[ModelState, ModelState]
    at: Tensor


def work(
    site: Site,
    program: BlockProgram | None,
    execution: Execution,
    memory: SharedMemory,
    channel: Channel,
    inherited: Sequence[Connection],
    spawned: bool,
    start: ServerState | None,
) -> None:
    """Do tasks until the pipe closes or the parent dies; a `spawned` one says first that work can begin.

    `inherited` are the parent's own ends of pipes, which a forked process has no business with. If the `start` of the run
    is given, a spawned one compiles its program before it says that.
    """
    # Ctrl-C, a lost connection and a request to end reach the whole group: the parent decides what becomes of it.
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    for pipe in inherited:
        pipe.close()
    keep_freed_memory()
    gc.freeze()  # what was inherited stays: walking through it takes time, and copies its pages
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    if spawned or site.replica.placement != execution.placement:
        # What a spawned process is given, torch has put into memory that all of them share: they would train one model.
        site = execution.placed(apart(site) if spawned else site)
        program = execution.program(site)
    with pinned(), noting_signals():
        if program is not None and spawned and start is not None:
            warm_up(program, site, start)
        if spawned:
            channel.send(b"ready")
        try:
            _work(site, program, memory, channel)
        except (EOFError, OSError, ProtocolError):  # the parent is gone, or a client has closed or disturbed the pipe
            os._exit(1)
        except SpoiledError:
            os._exit(SPOILED)


def _work(site: Site, program: BlockProgram | None, memory: SharedMemory, channel: Channel) -> None:
    state = ServerState(0, memory.models[0], {})

    def at(index: int) -> None:
        memory.at[0] = index

    while True:
        said = read(channel.receive())
        state = replace(state, model=memory.models[said["model"]])
        if said["broadcast"]:
            state = replace(state, broadcast=read_tensors(channel.receive()))
        task = decode_task(said, channel.receive() if said["client_states"] else b"")
        answer, tensors = encode_reply(perform(site, program, task, state, at), memory.results[said["results"]])
        channel.send(answer, *([tensors] if tensors else []))


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
