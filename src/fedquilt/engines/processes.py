"""One single-threaded worker process a core: the default.

Parameters and results lie in shared memory, data are inherited, and nothing is pickled per client. Clients are handed out
one at a time, the largest first. A worker that dies is replaced and its client run again, with the same bits.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal

import torch.multiprocessing

from fedquilt.arguments import Count
from fedquilt.core.block import Program, warm_up
from fedquilt.core.client import ClientUpdate, Fault
from fedquilt.core.engine import Engine, Session
from fedquilt.core.evaluation import Counted, Evaluation, chunks, combine, evaluation_failed
from fedquilt.core.execution import Compute, Execution
from fedquilt.core.federation import Federation, SplitName
from fedquilt.core.params import ModelState
from fedquilt.core.pinned import pinned
from fedquilt.core.place import Device, Place, Precision, require
from fedquilt.core.plan import Plan
from fedquilt.core.state import ClientStore, ServerState
from fedquilt.core.tensors import from_bytes, to_bytes
from fedquilt.core.transform import State
from fedquilt.core.updates import Answer, BlockUpdate
from fedquilt.engines.executing import Executing
from fedquilt.engines.shared import rows_of, shared_models, write
from fedquilt.engines.worker import Desk, work
from fedquilt.errors import SpecError, WorkerError
from fedquilt.registry import engines

DEATHS_ALLOWED = 3

OWN_AT_ONCE, OWN_TASKS = 64, 8
"""Clients that are evaluated on their own data in one task, at most; tasks of a worker, at least, if there are so many."""

Start = Literal["fork", "spawn"]


@engines.register
def processes(
    workers: Count | None = None,
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
    block: Count = 16,
    workers: Count | None = None,
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
            session = ProcessSession(federation, self.workers, self.start, self.execution)
            try:
                yield session
            finally:
                session.close()


@dataclass(eq=False)
class _Worker:
    process: BaseProcess
    pipe: Connection
    desk: Desk
    place: int = 0
    task: _Task | None = None
    told: bool = False


@dataclass(eq=False)
class _Task:
    message: dict[str, Any]
    kept: bytes | None = None
    deaths: int = 0


def _task(message: dict[str, Any], kept: Sequence[State | None]) -> _Task:
    memories: State = {str(place): own for place, own in enumerate(kept) if own is not None}
    return _Task(message | {"kept": bool(memories)}, to_bytes(memories) if memories else None)


@dataclass(eq=False)
class ProcessSession:
    """A pool of workers on one federation."""

    federation: Federation
    count: int
    start: Start
    execution: Execution
    _model: ModelState = field(init=False)
    _program: Program | None = field(init=False)
    _workers: list[_Worker] = field(init=False, default_factory=list)
    _announced: bytes = field(init=False, default=b"")

    def __post_init__(self) -> None:
        """Start the workers."""
        one = shared_models(self.federation.layout, self.start == "fork", 1)
        self._model = ModelState(one.vector[0], one.buffers[0], one.counters[0])
        require(self.execution.place)
        on_cpu = self.execution.place.device == "cpu"
        if on_cpu:  # elsewhere workers place the model themselves: a device's memory is a process's own
            self.federation = self.execution.placed(self.federation)
        self._program = self.execution.program(self.federation)
        if self._program is not None and on_cpu:
            # Compiled before the workers are forked, so that it is done once; spawned ones do it again, from the cache.
            warm_up(self._program, self.federation)
        for _ in range(self.count):
            self._workers.append(self._hire())
        for worker in self._workers:
            self._greet(worker)

    def run(self, planned: Plan, state: ServerState, store: ClientStore) -> Iterator[Answer]:
        """Run the plan's clients, the largest first."""
        self._broadcast(state)
        tasks = []
        for slots in self.execution.blocks(planned):
            clients = [planned.client_of[slot] for slot in slots]
            message = {"do": "train", "round": planned.round, "clients": clients, "slots": slots}
            tasks.append(_task(message, [store.get(client) for client in clients]))
        for _, answer, places, more in self._share_out(tasks):
            besides: dict[str, Any] = {} if more is None else from_bytes(more)
            row = 0
            for said in answer["answers"]:
                if "fault" in said:
                    yield Fault(said["client"], said["slot"], said["fault"])
                elif "clients" in said:
                    yield BlockUpdate(values=rows_of(places, row, len(said["clients"])), **said)
                    row += len(said["clients"])
                else:
                    own = besides.get(str(row), {})
                    yield ClientUpdate(
                        delta=places.vector[row],
                        buffers=places.buffers[row],
                        counters=places.counters[row],
                        keep=own.get("keep"),
                        told=own.get("told", {}),
                        **said,
                    )
                    row += 1

    def evaluate_own(self, state: ServerState, clients: Sequence[int], store: ClientStore) -> list[Counted]:
        """Evaluate clients on all workers: several a task, since a few examples take no longer than a task's way."""
        self._broadcast(state)
        kept = [store.get(client) for client in clients]
        # What clients keep may be as large as the model; and every worker should have several tasks, to share well.
        most = 1 if any(kept) else min(OWN_AT_ONCE, max(len(clients) // (OWN_TASKS * self.count), 1))
        tasks = []
        for some in (slice(first, first + most) for first in range(0, len(clients), most)):
            tasks.append(_task({"do": "own", "round": state.round, "clients": list(clients[some])}, kept[some]))
        done: dict[int, Counted] = {}
        for task, answer, _, _ in self._share_out(tasks):
            if isinstance(answer, dict):
                raise evaluation_failed(answer["error"])
            done |= {client: Counted(*each) for client, each in zip(task.message["clients"], answer, strict=True)}
        return [done[client] for client in clients]

    def evaluate(self, model: ModelState, split: SplitName) -> Evaluation:
        """Evaluate the chunks of a split on all workers."""
        write(self._model, model)
        rows = chunks(len(self.federation.split(split)))
        tasks = [_Task({"do": "evaluate", "split": split, "first": first, "last": last}) for first, last in rows]
        done = self._counted(tasks, "first")
        return combine([done[first] for first, _ in rows], self.federation.metrics)

    def _counted(self, tasks: list[_Task], key: str) -> dict[int, Counted]:
        done = {}
        for task, answer, _, _ in self._share_out(tasks):
            if isinstance(answer, dict):
                raise evaluation_failed(answer["error"])
            done[task.message[key]] = Counted(*answer)
        return done

    def _broadcast(self, state: ServerState) -> None:
        """Make a server's model and announcements known; workers are told of the latter with their next task."""
        write(self._model, state.model)
        if state.announced:
            announced = to_bytes(state.announced)
            if announced != self._announced:
                self._announced = announced
                for worker in self._workers:
                    worker.told = False

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()
        self._workers.clear()

    def _hire(self) -> _Worker:
        context = torch.multiprocessing.get_context(self.start)
        layout, forked = self.federation.layout, self.start == "fork"
        block = self.execution.block
        desk = Desk(self._model, (shared_models(layout, forked, block), shared_models(layout, forked, block)))
        ours, theirs = context.Pipe()
        process = context.Process(  # type: ignore[attr-defined]
            target=work,
            args=(self.federation, self._program, self.execution, desk, theirs, self.start == "spawn"),
            daemon=True,
        )
        with warnings.catch_warnings():
            # Python 3.12 warns of a fork when any thread exists. NumPy's idle ones do; a worker never uses them.
            warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
            process.start()
        theirs.close()
        return _Worker(process, ours, desk)

    def _greet(self, worker: _Worker) -> None:
        """Wait until a spawned worker has started; a forked one is there at once."""
        if self.start == "fork":
            return
        try:
            worker.pipe.recv_bytes()
        except EOFError:
            self.close()
            raise WorkerError(
                "a worker process could not start. If the message above speaks of starting a new process: put what your "
                "script does under `if __name__ == '__main__':`, because workers import it"
            ) from None

    def _share_out(self, tasks: list[_Task]) -> Iterator[tuple[_Task, Any, ModelState, bytes | None]]:
        """Hand out tasks as workers become free; yield each with its answer and where its values lie."""
        queue = deque(tasks)
        for worker in self._workers:
            self._give(worker, queue)
        while any(worker.task for worker in self._workers):
            ready = wait(
                [w.pipe for w in self._workers if w.task] + [w.process.sentinel for w in self._workers if w.task]
            )
            for place, worker in enumerate(self._workers):
                if worker.task is None or not (worker.pipe in ready or worker.process.sentinel in ready):
                    continue
                try:
                    answer = json.loads(worker.pipe.recv_bytes())
                    more = worker.pipe.recv_bytes() if isinstance(answer, dict) and answer.get("more") else None
                except (EOFError, OSError):
                    self._replace(place, queue)
                    continue
                done, values = worker.task, worker.desk.results[worker.place]
                # The next task goes out before this result is used: it is written to the worker's other place.
                self._give(worker, queue)
                yield done, answer, values, more

    def _give(self, worker: _Worker, queue: deque[_Task]) -> None:
        worker.task = queue.popleft() if queue else None
        if worker.task is None:
            return
        worker.place = 1 - worker.place
        try:
            tell = bool(self._announced) and not worker.told
            message = worker.task.message | {"place": worker.place, "announced": tell}
            worker.pipe.send_bytes(json.dumps(message).encode())
            if tell:
                worker.pipe.send_bytes(self._announced)
                worker.told = True
            if worker.task.kept is not None:
                worker.pipe.send_bytes(worker.task.kept)
        except OSError:
            return  # The worker has died; its sentinel will say so.

    def _replace(self, place: int, queue: deque[_Task]) -> None:
        dead = self._workers[place]
        dead.process.join()
        dead.pipe.close()
        task = dead.task
        assert task is not None
        task.deaths += 1
        if task.deaths >= DEATHS_ALLOWED:
            self._workers.pop(place)
            raise WorkerError(self._epitaph(task, dead.process.exitcode))
        warnings.warn(
            f"worker process {dead.process.pid} died (exit code {dead.process.exitcode}); its work is done again",
            RuntimeWarning,
            stacklevel=2,
        )
        self._workers[place] = self._hire()
        self._greet(self._workers[place])
        queue.appendleft(task)
        self._give(self._workers[place], queue)

    def _epitaph(self, task: _Task, exitcode: int | None) -> str:
        clients = task.message.get("clients", [])
        what = f"client {', '.join(map(str, clients))}" if clients else "evaluation"
        text = f"{DEATHS_ALLOWED} worker processes died on {what} (exit code {exitcode})"
        if exitcode == -9:
            text += "; the system may be out of memory: try fewer workers (engine.workers)"
        return text
