"""One single-threaded worker process a core: the default.

Parameters and results lie in shared memory, data are inherited, and nothing is pickled per client. Clients are handed out
one at a time, the largest first, and evaluations in chunks. A worker that dies is replaced and its task done again, with
the same bits.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fedquilt.arguments import Size, Workers
from fedquilt.core.block import warm_up
from fedquilt.core.client import ClientUpdate, Fault
from fedquilt.core.engine import Engine, Measured, Pending, Session
from fedquilt.core.evaluation import Counted, Evaluation, chunks, combine, evaluation_failed
from fedquilt.core.execution import Compute, Execution
from fedquilt.core.federation import Federation, SplitName
from fedquilt.core.params import ModelState
from fedquilt.core.pinned import pinned
from fedquilt.core.place import Device, Place, Precision
from fedquilt.core.plan import Plan
from fedquilt.core.state import ClientStore, ServerState
from fedquilt.core.tensors import to_bytes
from fedquilt.core.updates import Answer, BlockUpdate
from fedquilt.engines.executing import Executing
from fedquilt.engines.pool import Answered, Pool, Start, Task
from fedquilt.engines.shared import rows_of
from fedquilt.errors import SpecError
from fedquilt.registry import engines

OWN_AT_ONCE, OWN_TASKS = 64, 8
"""Clients that are evaluated on their own data in one task, at most; tasks of a worker, at least, if there are so many."""


@engines.register
def processes(
    workers: Workers | None = None,
    start: Start | None = None,
    compute: Compute = "eager",
    precision: Precision = "float32",
    device: Device = "cpu",
) -> Engine:
    """One single-threaded worker process a core, sharing memory; the default.

    `workers` is the number of cores unless given, or 1 on a `device` other than the CPU. `start` is how they are started:
    "fork" on Linux (ready at once), "spawn" elsewhere and for other devices. Neither changes the result.
    `compute = "compiled"` compiles the local step, several steps a call; `precision = "bf16"` runs the model under
    autocast.

    >>> processes(workers=2, start="fork").workers
    2
    """
    return _engine(workers, start, Execution(1, compute, Place(device, precision)))


@engines.register
def vectorised(
    block: Size = 16,
    workers: Workers | None = None,
    start: Start | None = None,
    compute: Compute = "eager",
    precision: Precision = "float32",
    device: Device = "cpu",
) -> Engine:
    """Many clients as one batched program, in every worker process; for small models.

    `block` clients are trained at once, those of similar sizes together; shorter ones are padded. It decides the last bits
    of the result, `workers` and `start` do not. The other arguments are those of `processes`.

    >>> vectorised(block=8, workers=1).execution.block
    8
    """
    return _engine(workers, start, Execution(block, compute, Place(device, precision)))


def _engine(workers: int | None, start: Start | None, execution: Execution) -> ProcessEngine:
    on_cpu = execution.place.device == "cpu"
    if start == "fork" and not on_cpu:
        raise SpecError(f'start: a forked process cannot use device = "{execution.place.device}"; use "spawn"')
    usual: Start = "fork" if on_cpu and sys.platform == "linux" else "spawn"
    return ProcessEngine(execution, workers or (_cores() if on_cpu else 1), start or usual)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class ProcessEngine(Executing):
    """See `processes` and `vectorised`."""

    workers: int
    start: Start

    @contextmanager
    def open(self, federation: Federation) -> Iterator[Session]:
        """Start the workers, and end them at the end."""
        # torch's settings are pinned first: a pool of threads does not survive a fork.
        with pinned():
            session = ProcessSession.of(federation, self.workers, self.start, self.execution)
            try:
                yield session
            finally:
                session.pool.close()


@dataclass(frozen=True, eq=False)
class ProcessSession:
    """Turns plans and evaluations into tasks for a pool of workers."""

    federation: Federation
    execution: Execution
    pool: Pool

    @classmethod
    def of(cls, federation: Federation, workers: int, start: Start, execution: Execution) -> ProcessSession:
        """Start the workers."""
        on_cpu = execution.place.device == "cpu"
        if on_cpu:
            federation = execution.placed(federation)
        else:  # workers place the model themselves: a device's memory is a process's own
            execution.require(federation)
        program = execution.program(federation)
        if program is not None and on_cpu:
            # Compiled before the workers are forked, so that it is done once; spawned ones do it again, from the cache.
            warm_up(program, federation)
        return cls(federation, execution, Pool(federation, program, execution, workers, start))

    def run(self, planned: Plan, state: ServerState, store: ClientStore) -> Iterator[Answer]:
        """Begin to run the plan's clients, the largest first."""
        tasks = []
        for slots in self.execution.blocks(planned):
            clients = [planned.client_of[slot] for slot in slots]
            message = {"do": "train", "round": planned.round, "clients": clients, "slots": slots}
            tasks.append(Task(message, [store.get(client) for client in clients], fills=True))
        return _updates(self.pool.begin(state.model, tasks, _announced(state)))

    def evaluate(self, model: ModelState, split: SplitName) -> Pending[Evaluation]:
        """Begin to evaluate the chunks of a split."""
        rows = chunks(len(self.federation.split(split)))
        tasks = [Task({"do": "evaluate", "split": split, "first": first, "last": last}) for first, last in rows]
        answers = self.pool.begin(model, tasks)
        return lambda: combine([Counted(*said) for said in _said(tasks, answers)], self.federation.metrics)

    def evaluate_own(self, state: ServerState, clients: Sequence[int], store: ClientStore) -> Pending[list[Measured]]:
        """Begin to evaluate clients on their own data: several a task, since a few examples take no longer than its way."""
        kept = [store.get(client) for client in clients]
        # What clients keep may be as large as the model; and every worker should have several tasks, to share well.
        most = 1 if any(kept) else min(OWN_AT_ONCE, max(len(clients) // (OWN_TASKS * self.pool.size), 1))
        tasks = []
        for some in (slice(first, first + most) for first in range(0, len(clients), most)):
            asked = {"clients": list(clients[some]), "slots": list(clients[some])}
            tasks.append(Task({"do": "own", "round": state.round, **asked}, kept[some], alone=True))
        answers = self.pool.begin(state.model, tasks, _announced(state))
        return lambda: _measured(clients, tasks, _said(tasks, answers))


def _announced(state: ServerState) -> bytes:
    return to_bytes(state.announced) if state.announced else b""


def _said(tasks: Sequence[Task], answers: Iterable[Answered]) -> list[Any]:
    """Wait for an evaluation; return what was said of each of its tasks."""
    said = {}
    for answered in answers:
        if isinstance(answered.said, dict):
            raise evaluation_failed(answered.said["error"])
        said[answered.task] = answered.said
    return [said[task] for task in tasks]


def _measured(clients: Sequence[int], tasks: Sequence[Task], said: Sequence[Any]) -> list[Measured]:
    """Return what is known of each client; a task's own list of clients holds those who were not left out of it."""
    found: dict[int, Measured] = {fault.client: fault for task in tasks for fault in task.faults}
    for task, several in zip(tasks, said, strict=True):
        for client, each in zip(task.clients, several or (), strict=True):
            failed = isinstance(each, dict)
            found[client] = Fault(client, client, each["fault"], kind=each["kind"]) if failed else Counted(*each)
    return [found[client] for client in clients]


def _updates(answers: Iterable[Answered]) -> Iterator[Answer]:
    """Turn what workers answer into clients' updates, whose values stay where they lie."""
    for task, said, values, more in answers:
        yield from task.faults
        besides: dict[str, Any] = more
        row = 0
        for about in [] if said is None else said["answers"]:
            if "fault" in about:
                yield Fault(about["client"], about["slot"], about["fault"], kind=about["kind"])
            elif "clients" in about:
                yield BlockUpdate(values=rows_of(values, row, len(about["clients"])), **about)
                row += len(about["clients"])
            else:
                own = besides.get(str(row), {})
                yield ClientUpdate(
                    delta=values.vector[row],
                    buffers=values.buffers[row],
                    counters=values.counters[row],
                    keep=own.get("keep"),
                    told=own.get("told", {}),
                    **about,
                )
                row += 1
