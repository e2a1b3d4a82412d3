"""The transport of worker processes: tasks and answers through pipes, models and results through shared memory.

Workers are forked where that can be done, so that they have the data already. One that dies, sends something else than an
answer or is stopped is replaced by a new one at once.
"""

from __future__ import annotations

import os
import secrets
import signal
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Literal

import torch.multiprocessing

from fedquilt.algorithm.state import ServerState
from fedquilt.base.errors import WorkerError
from fedquilt.compute.layout import ModelState, State
from fedquilt.compute.tensors import to_bytes
from fedquilt.engines.encoding import ProtocolError, decode_reply, encode_task, read
from fedquilt.engines.execution import Execution
from fedquilt.engines.frames import TOKEN, Channel
from fedquilt.engines.shared import shared, shared_models, write
from fedquilt.engines.tasks import Task
from fedquilt.engines.transport import Answered, Event, Joined, Left
from fedquilt.engines.worker import SPOILED, SharedMemory, work
from fedquilt.round.block import BlockProgram
from fedquilt.round.site import Site

ENDING = 1.0
"""Seconds that a worker may take to end once its pipe is closed."""

Start = Literal["fork", "spawn"]


@dataclass(eq=False)
class _Worker:
    """A process and what it shares with this one; `results` numbers the buffer of its task's results, `free` others."""

    process: BaseProcess
    channel: Channel
    memory: SharedMemory
    free: list[int] = field(default_factory=lambda: [0, 1])
    results: int = 0
    task: Task | None = None
    known: bytes = b""
    proven: bool = False
    lost: bool = False

    @property
    def pipe(self) -> Connection:
        return self.channel.pipe


class Pipes:
    """Worker processes at one site; a `Transport`."""

    lanes_are = "worker processes"

    def __init__(
        self,
        site: Site,
        program: BlockProgram | None,
        execution: Execution,
        workers: int,
        start: Start,
        state: ServerState,
    ) -> None:
        """Start the workers of a site; `state` is the server's before the first round."""
        # Where clients' time is limited, it must not be spent on compiling.
        self._warm_up_from = None if site.client_seconds is None else state
        # How long clients may take is watched by the scheduler: a worker may be beyond noticing.
        site = replace(site, client_seconds=None)
        self._site, self._program, self._execution, self._start = site, program, execution, start
        models = shared_models(site.layout, start == "fork", workers)
        # As many as workers: a job that is under way has a task at a worker, and one more is to be begun by a free one.
        self._models = [ModelState(*each) for each in zip(models.vector, models.buffers, models.counters, strict=True)]
        self._written: list[ModelState | None] = [None] * workers
        self._published: dict[int, tuple[int, bytes]] = {}
        self._numbers = count()
        self._workers: dict[int, _Worker] = {}
        self._events: list[Event] = []
        started = [self._start_worker() for _ in range(workers)]
        for lane in started:
            self._report_started(lane)

    def publish(self, model: ModelState, broadcast: State) -> int:
        """Write a model into shared memory, unless it holds it already."""
        number = next(self._numbers)
        used = {slot for slot, _ in self._published.values()}
        holding = [slot for slot, written in enumerate(self._written) if written is model]
        slot = (holding or [slot for slot in range(len(self._models)) if slot not in used])[0]
        if not holding:
            write(self._models[slot], model)
            self._written[slot] = model
        self._published[number] = slot, to_bytes(broadcast) if broadcast else b""
        return number

    def retire(self, published: int) -> None:
        """Let the memory be used for another model."""
        del self._published[published]

    def give(self, lane: int, task: Task, published: int) -> None:
        """Send a task to a worker."""
        worker, (slot, broadcast) = self._workers[lane], self._published[published]
        worker.task = task
        if task.fills:
            worker.results = worker.free.pop(0)
        renew = bool(broadcast) and worker.known != broadcast
        said, client_states = encode_task(task, model=slot, results=worker.results, broadcast=renew)
        worker.memory.at[0] = 0
        try:
            worker.channel.send(said, *([broadcast] if renew else []), *([client_states] if client_states else []))
            worker.known = broadcast if renew else worker.known
        except (OSError, EOFError):
            # It has died, and its sentinel will say so. If it has worked before, this task has nothing to do with it.
            worker.lost = worker.proven

    def wait(self, seconds: float | None) -> Sequence[Event]:
        """Wait for the workers that have a task."""
        busy = {lane: worker for lane, worker in self._workers.items() if worker.task is not None}
        if not self._events:
            waiting = [worker.pipe for worker in busy.values()] + [worker.process.sentinel for worker in busy.values()]
            ready = wait(waiting, seconds)
            for lane, worker in busy.items():
                try:
                    if worker.pipe in ready:
                        self._hear(lane, worker)
                    elif worker.process.sentinel in ready:
                        raise EOFError
                except (EOFError, OSError):
                    self._replace(lane, worker)
                except ProtocolError as error:
                    self._replace(lane, worker, f"the last one sent an invalid message: {error}")
        events, self._events = self._events, []
        return events

    def progress(self, lane: int) -> int:
        """Read where a worker is; clients can write there, too."""
        return int(self._workers[lane].memory.at[0])

    def stop(self, lane: int) -> None:
        """Kill a worker, and start another."""
        self._end(lane)
        self._report_started(self._start_worker())

    def release(self, lane: int, receipt: int) -> None:
        """Let a worker use the buffer of some results again."""
        self._workers[lane].free.append(receipt)

    def close(self) -> None:
        """Kill the workers."""
        for worker in self._workers.values():
            worker.process.kill()
        for worker in self._workers.values():
            worker.process.join()
            worker.pipe.close()
        self._workers.clear()

    def _hear(self, lane: int, worker: _Worker) -> None:
        """Take what a worker has sent, if it is complete."""
        message = worker.channel.poll()
        if message is None:
            return
        assert worker.task is not None
        said = read(message)
        tensors = worker.channel.receive() if isinstance(said, dict) and said.get("tensors") is True else b""
        reply = decode_reply(worker.task, said, tensors, worker.memory.results[worker.results])
        worker.task, worker.proven = None, True
        self._events.append(Answered(lane, reply, worker.results))

    def _replace(self, lane: int, dead: _Worker, why: str = "") -> None:
        """Start a worker for one that died or sent an invalid message."""
        if not why:  # it may be about to end by itself, and say how
            dead.process.join(ENDING)
            why = "it closed the pipe to its parent" if dead.process.is_alive() else ""
        self._end(lane)
        code = dead.process.exitcode
        advice = "the system may be out of memory: try fewer workers (engine.workers)" if code == -9 and not why else ""
        self._events.append(Left(lane, why or _ending(code), advice, int(dead.memory.at[0]), dead.lost))
        self._report_started(self._start_worker())

    def _end(self, lane: int) -> None:
        worker = self._workers.pop(lane)  # those that are started from now on must not inherit its pipe
        worker.process.kill()
        worker.process.join()
        worker.pipe.close()

    def _start_worker(self) -> int:
        context = torch.multiprocessing.get_context(self._start)
        layout, forked, block = self._site.layout, self._start == "fork", self._execution.block
        results = shared_models(layout, forked, block), shared_models(layout, forked, block)
        memory = SharedMemory(tuple(self._models), results, shared(1, torch.int64, forked))
        ours, theirs = context.Pipe()
        token = secrets.token_bytes(TOKEN)
        inherited = [ours, *(worker.pipe for worker in self._workers.values())] if forked else []
        shared_with = (memory, Channel(theirs, token), inherited, not forked, self._warm_up_from)
        process = context.Process(  # type: ignore[attr-defined]
            target=work, args=(self._site, self._program, self._execution, *shared_with), daemon=True
        )
        with warnings.catch_warnings():
            # Python 3.12 warns of a fork when any thread exists. NumPy's idle ones do; a worker never uses them.
            warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
            process.start()
        theirs.close()
        os.set_blocking(ours.fileno(), False)
        lane = next(self._numbers)
        self._workers[lane] = _Worker(process, Channel(ours, token, process.sentinel), memory)
        return lane

    def _report_started(self, lane: int) -> None:
        """Report a worker once it has started, which a forked one has at once."""
        worker = self._workers[lane]
        if self._start == "spawn":
            try:
                worker.channel.receive()
            except (EOFError, OSError, ProtocolError):
                self.close()
                raise WorkerError(
                    "a worker process could not start. If the message above speaks of starting a new process: put what "
                    "your script does under `if __name__ == '__main__':`, because workers import it"
                ) from None
        self._events.append(Joined(lane, f"worker process {worker.process.pid}", room=len(worker.free)))


def _ending(exitcode: int | None) -> str:
    if exitcode == SPOILED:
        return "a client changed process settings that cannot be restored: open files, or torch's modes"
    if exitcode is not None and exitcode < 0:
        names = {number.value: number.name for number in signal.Signals}
        return f"signal {names.get(-exitcode, -exitcode)}"
    return f"exit code {exitcode}"
