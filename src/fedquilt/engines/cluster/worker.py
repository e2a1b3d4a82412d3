"""A worker on a cluster: an actor that is given a run's site once, and then does tasks on models from the object store."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedquilt.algorithm.state import ServerState
from fedquilt.algorithm.updates import BlockUpdate, ClientUpdate
from fedquilt.compute.interrupts import noting_signals
from fedquilt.compute.layout import Layout, ModelState
from fedquilt.compute.pinned import pinned
from fedquilt.engines.allocator import keep_freed_memory
from fedquilt.engines.cluster.facts import Facts
from fedquilt.engines.cluster.packing import Array, Packed, read_only, unpacked
from fedquilt.engines.encoding import decode_task, encode_reply, read, read_tensors
from fedquilt.engines.execution import Execution
from fedquilt.engines.perform import perform
from fedquilt.engines.tasks import Reply, Task, TaskResult
from fedquilt.round.block import BlockProgram
from fedquilt.round.site import Site
from fedquilt.round.views import apart
from fedquilt.round.warm_up import warm_up

Sent = tuple[bytes, Array, Array, Array, Array, float]
"""A reply as it is sent: JSON, tensors, the rows of clients' models, and the CPU that the work took, in seconds."""

Model = tuple[Array, Array, Array, bytes]
"""A model's parts, and what is broadcast besides it."""


class Worker:
    """Does one task after the other; settings that decide bits are pinned for as long as it lives."""

    def __init__(self) -> None:
        """Pin this process's settings."""
        keep_freed_memory()
        self._pinned = ExitStack()
        self._pinned.enter_context(pinned())
        self._pinned.enter_context(noting_signals())
        self._site: Site | None = None
        self._program: BlockProgram | None = None

    def begin(self, packed: Packed, execution: Execution, compile_first: bool) -> tuple[int, Facts]:
        """Take a run's site over; return the process's id, and what decides bits here."""
        self._site = self._program = None
        site, start = unpacked(packed)
        if callable(site):
            site = site()
        # What comes from the object store cannot be written: the model to train is a copy.
        site = execution.placed(apart(replace(site, client_seconds=None)))
        self._site, self._program = site, execution.program(site)
        if self._program is not None and compile_first:
            warm_up(self._program, site, start)
        return os.getpid(), Facts.of_this_machine()

    def do(self, said: bytes, client_states: bytes, model: Model) -> Sent:
        """Do a task."""
        started, site = time.process_time(), self._at_work()
        task = decode_task(read(said), client_states)
        return sent(perform(site, self._program, task, _state(task, model)), site.layout, started)

    def do_alone(self, said: bytes, client_states: bytes, model: Model) -> Iterator[int | Sent]:
        """Do a task's clients one by one: yield the place of each before it is begun, and the reply at the end."""
        started, site = time.process_time(), self._at_work()
        task = decode_task(read(said), client_states)
        state, results, error = _state(task, model), list[TaskResult](), None
        for place in range(len(task.clients)):
            yield place
            reply = perform(site, self._program, task.only(place), state)
            results += reply.results
            error = error or reply.error
        yield sent(Reply(results, error), site.layout, started)

    def memory(self) -> int:
        """Return the bytes of memory that this process has to itself."""
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))

    def _at_work(self) -> Site:
        assert self._site is not None
        return self._site


def _state(task: Task, model: Model) -> ServerState:
    *parts, broadcast = model
    return ServerState(task.round, ModelState(*map(read_only, parts)), {}, read_tensors(broadcast))


def sent(reply: Reply, layout: Layout, started: float) -> Sent:
    """Write a reply; models go as arrays, which are not copied once more."""
    updates = [result for result in reply.results if isinstance(result, ClientUpdate | BlockUpdate)]
    count = sum(len(each) if isinstance(each, BlockUpdate) else 1 for each in updates)
    rows = ModelState(
        torch.empty(count, layout.size),
        torch.empty(count, layout.buffer_size),
        torch.empty(count, layout.counter_size, dtype=torch.int64),
    )
    said, tensors = encode_reply(reply, rows)
    arrays = rows.vector.numpy(), rows.buffers.numpy(), rows.counters.numpy()
    return said, np.frombuffer(tensors, dtype=np.uint8), *arrays, time.process_time() - started


def received(message: Sent) -> tuple[bytes, bytes, ModelState, float]:
    """Take a reply over: its models are copied, since what lies in the object store cannot be written."""
    said, tensors, vector, buffers, counters, seconds = message
    rows = ModelState(*(torch.from_numpy(np.array(part)) for part in (vector, buffers, counters)))
    return said, tensors.tobytes(), rows, seconds


def nbytes(message: Any) -> int:
    """Return the size of what is sent."""
    return sum(len(part) if isinstance(part, bytes) else part.nbytes for part in message if not isinstance(part, float))
