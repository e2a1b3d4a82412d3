"""Worker processes, and how work is handed out to them.

A job is work on one model: the clients of a round, or the pieces of an evaluation. Several may be under way: their tasks go
out in the order in which the jobs began, and no worker waits for the end of one before it is given a task of the next.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import signal
import time
import warnings
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal, NamedTuple

import torch.multiprocessing

from fedquilt.core.block import Program
from fedquilt.core.client import Fault, Kind
from fedquilt.core.execution import Execution
from fedquilt.core.federation import Federation
from fedquilt.core.hosting import too_slow
from fedquilt.core.params import ModelState
from fedquilt.core.tensors import to_bytes
from fedquilt.core.transform import State
from fedquilt.engines.frames import TOKEN, Channel, ProtocolError
from fedquilt.engines.protocol import check, read, read_more
from fedquilt.engines.shared import shared, shared_models, write
from fedquilt.engines.worker import SPOILED, Desk, work
from fedquilt.errors import WorkerError

DEATHS_ALLOWED = 3

ENDING = 1.0
"""Seconds that a worker may take to end once its pipe is closed."""

Start = Literal["fork", "spawn"]


@dataclass(eq=False)
class Task:
    """What one worker does at a time; `kept` is what its clients keep between rounds.

    The answer of a task that `fills` is values, in one of the worker's two places for them. Its clients are trained
    together, or, once workers have died on them, `alone`, one by one, so that the one at fault is found. `deaths` are
    counted by slot, those of a block under None; `faults` are the clients that are left out already.
    """

    message: dict[str, Any]
    kept: Sequence[State | None] = ()
    fills: bool = False
    alone: bool = False
    deaths: Counter[int | None] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)
    suspicion: bool = False
    cleared: bool = False

    @property
    def clients(self) -> list[int]:
        """The clients that it is about."""
        clients: list[int] = self.message.get("clients", [])
        return clients

    @property
    def single(self) -> bool:
        """Whether it is known which client a worker is busy with."""
        return self.alone or len(self.clients) == 1

    def leave_out(self, slot: int, reason: str, kind: Kind) -> None:
        """Do the task without the client in a slot."""
        clients, slots = self.clients, self.message["slots"]
        self.faults.append(Fault(clients[slots.index(slot)], slot, reason, kind=kind))
        rest = [place for place, other in enumerate(slots) if other != slot]
        few = {"clients": [clients[place] for place in rest], "slots": [slots[place] for place in rest]}
        self.message, self.kept = self.message | few, [self.kept[place] for place in rest]


class Answered(NamedTuple):
    """A task that is done: what the worker said, the values, and what was sent besides.

    Nothing was said where all of the task's clients were left out.
    """

    task: Task
    said: Any
    values: ModelState
    more: State


@dataclass(eq=False)
class _Job:
    model: ModelState
    announced: bytes
    queue: deque[Task]
    unanswered: int
    answers: deque[tuple[Answered, _Worker | None, int]] = field(default_factory=deque)
    slot: int | None = None
    failure: WorkerError | None = None


@dataclass(eq=False)
class _Worker:
    process: BaseProcess
    channel: Channel
    desk: Desk
    free: list[int] = field(default_factory=lambda: [0, 1])
    place: int = 0
    job: _Job | None = None
    task: Task | None = None
    told: bytes = b""
    proven: bool = False
    lost: bool = False
    since: float = 0.0
    seen: int = 0

    @property
    def pipe(self) -> Connection:
        return self.channel.pipe

    def busy_with(self) -> int | None:
        """Say in which slot the client is that it works for; None: several at once, or none."""
        if self.task is None or not self.task.single:
            return None
        slots: list[int] = self.task.message["slots"]
        return slots[min(max(int(self.desk.at[0]), 0), len(slots) - 1)]  # a client can write into what is shared, too


class Pool:
    """Workers on one federation. One that dies is replaced, and its task is done again."""

    def __init__(
        self, federation: Federation, program: Program | None, execution: Execution, count: int, start: Start
    ) -> None:
        """Start the workers."""
        # How long clients may take is watched from here: a worker may be beyond noticing.
        self._seconds, federation = federation.client_seconds, replace(federation, client_seconds=None)
        self._federation, self._program, self._execution, self._start = federation, program, execution, start
        models = shared_models(federation.layout, start == "fork", count)
        # As many as workers: a job that is under way has a task at a worker, and one more is to be begun by a free one.
        self._models = [ModelState(*each) for each in zip(models.vector, models.buffers, models.counters, strict=True)]
        self._written: list[ModelState | None] = [None] * count
        self._jobs: list[_Job] = []
        self._workers: list[_Worker] = []
        for _ in range(count):
            self._workers.append(self._hire())
        for worker in self._workers:
            self._greet(worker)

    @property
    def size(self) -> int:
        """The number of workers."""
        return len(self._workers)

    def begin(self, model: ModelState, tasks: Sequence[Task], announced: bytes = b"") -> Iterator[Answered]:
        """Begin tasks that work on one model; return their answers, in any order, each good until the next is asked for.

        Answers of jobs are asked for in the order in which the jobs began.
        """
        job = _Job(model, announced, deque(tasks), len(tasks))
        if tasks:
            self._jobs.append(job)
            self._hand_out()
        return self._answers(job)

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()
        self._workers.clear()

    def _answers(self, job: _Job) -> Iterator[Answered]:
        while job.unanswered or job.answers or job.failure is not None:
            if job.failure is not None:
                raise job.failure
            if not job.answers:
                self._listen()
                continue
            answered, worker, place = job.answers.popleft()
            yield answered
            if answered.task.fills and worker is not None:
                worker.free.append(place)
                self._hand_out()

    def _listen(self) -> None:
        """Wait until workers answer, die or take too long; take their answers and give them new tasks."""
        busy = [worker for worker in self._workers if worker.task is not None]
        assert busy, "answers were not asked for in the order in which jobs began"
        deadlines = [self._deadline(worker) for worker in busy]
        left = max(min(deadlines) - time.monotonic(), 0.0)
        waiting = [worker.pipe for worker in busy] + [worker.process.sentinel for worker in busy]
        ready = wait(waiting, None if math.isinf(left) else left)
        for worker, deadline in zip(busy, deadlines, strict=True):
            try:
                if worker.pipe in ready:
                    self._hear(worker)
                elif worker.process.sentinel in ready:
                    raise EOFError
            except (EOFError, OSError):
                self._replace(worker)
            except ProtocolError as error:
                self._replace(worker, f"the last one sent nonsense: {error}")
            else:
                if worker.task is not None and time.monotonic() >= deadline:
                    self._look_after(worker)
        self._hand_out()

    def _hear(self, worker: _Worker) -> None:
        """Take what a worker has sent, if it is complete."""
        message = worker.channel.poll()
        if message is None:
            return
        job, task = worker.job, worker.task
        assert job is not None
        assert task is not None
        said = read(message)
        more = read_more(worker.channel.receive()) if isinstance(said, dict) and said.get("more") is True else {}
        check(task.message, said, more)
        worker.job = worker.task = None
        worker.proven = True
        if task.suspicion and task.alone and not task.faults:
            # Nobody died alone: it was chance, or it is the block. Once more together, since that decides the bits.
            task.alone, task.cleared, task.deaths = False, True, Counter()
            worker.free.append(worker.place)
            job.queue.appendleft(task)
            return
        job.answers.append((Answered(task, said, worker.desk.results[worker.place], more), worker, worker.place))
        self._done(job, 1)

    def _deadline(self, worker: _Worker) -> float:
        """Say when a worker must be looked after: when its clients have had the time that they may take."""
        if self._seconds is None or worker.task is None or not worker.task.clients:
            return math.inf
        return worker.since + self._seconds * (1 if worker.task.single else len(worker.task.clients))

    def _look_after(self, worker: _Worker) -> None:
        """End a worker whose time is up, unless it has gone on to another client meanwhile."""
        at = int(worker.desk.at[0])
        if at != worker.seen:
            worker.seen, worker.since = at, time.monotonic()
            return
        self._replace(worker, slow=True)

    def _done(self, job: _Job, tasks: int) -> None:
        job.unanswered -= tasks
        if not job.unanswered:
            self._jobs.remove(job)

    def _hand_out(self) -> None:
        """Give every free worker a task. One whose two places hold values that nobody has taken yet has to wait."""
        for worker in self._workers:
            job = next((job for job in self._jobs if job.queue), None)
            if job is None:
                return
            if worker.task is None and (worker.free or not job.queue[0].fills):
                self._give(worker, job)

    def _give(self, worker: _Worker, job: _Job) -> None:
        task = job.queue.popleft()
        worker.job, worker.task = job, task
        if task.fills:
            worker.place = worker.free.pop(0)
        memories: State = {str(place): own for place, own in enumerate(task.kept) if own is not None}
        tell = bool(job.announced) and worker.told != job.announced
        about = {"model": self._slot(job), "place": worker.place, "announced": tell, "kept": bool(memories)}
        worker.desk.at[0] = worker.seen = 0
        try:
            worker.channel.send(json.dumps(task.message | about | {"alone": task.alone}).encode())
            if tell:
                worker.channel.send(job.announced)
                worker.told = job.announced
            if memories:
                worker.channel.send(to_bytes(memories))
        except (OSError, EOFError):
            # It has died, and its sentinel will say so. If it has worked before, this task has nothing to do with it.
            worker.lost = worker.proven
        worker.since = time.monotonic()

    def _slot(self, job: _Job) -> int:
        """Say where in shared memory a job's model lies; it is written there unless it is there already."""
        if job.slot is None:
            under_way = {other.slot for other in takewhile(lambda other: other.slot is not None, self._jobs)}
            there = [slot for slot, model in enumerate(self._written) if model is job.model]
            job.slot = (there or [slot for slot in range(len(self._models)) if slot not in under_way])[0]
            if not there:
                write(self._models[job.slot], job.model)
                self._written[job.slot] = job.model
        return job.slot

    def _hire(self) -> _Worker:
        context = torch.multiprocessing.get_context(self._start)
        layout, forked, block = self._federation.layout, self._start == "fork", self._execution.block
        results = shared_models(layout, forked, block), shared_models(layout, forked, block)
        desk = Desk(tuple(self._models), results, shared(1, torch.int64, forked))
        ours, theirs = context.Pipe()
        token = secrets.token_bytes(TOKEN)
        inherited = [ours, *(worker.pipe for worker in self._workers)] if forked else []
        timed, spawned = self._seconds is not None, not forked
        shared_with = (desk, Channel(theirs, token), inherited, spawned, timed)
        process = context.Process(  # type: ignore[attr-defined]
            target=work, args=(self._federation, self._program, self._execution, *shared_with), daemon=True
        )
        with warnings.catch_warnings():
            # Python 3.12 warns of a fork when any thread exists. NumPy's idle ones do; a worker never uses them.
            warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
            process.start()
        theirs.close()
        os.set_blocking(ours.fileno(), False)
        return _Worker(process, Channel(ours, token, process.sentinel), desk)

    def _greet(self, worker: _Worker) -> None:
        """Wait until a spawned worker has started; a forked one is there at once."""
        if self._start == "fork":
            return
        try:
            worker.channel.receive()
        except (EOFError, OSError, ProtocolError):
            self.close()
            raise WorkerError(
                "a worker process could not start. If the message above speaks of starting a new process: put what your "
                "script does under `if __name__ == '__main__':`, because workers import it"
            ) from None

    def _replace(self, dead: _Worker, why: str = "", slow: bool = False) -> None:
        """Put a new worker in the place of one that died, sent nonsense or was too slow; its task is done again."""
        if not (slow or why):  # it may be about to end by itself, and say how
            dead.process.join(ENDING)
            why = "it closed the pipe to its parent" if dead.process.is_alive() else ""
        dead.process.kill()
        dead.process.join()
        job, task, slot, place = dead.job, dead.task, dead.busy_with(), self._workers.index(dead)
        dead.pipe.close()
        assert job is not None
        assert task is not None
        del self._workers[place]  # the new one must not inherit its pipe
        self._workers.insert(place, self._hire())
        self._greet(self._workers[place])
        code = dead.process.exitcode
        if slow:
            self._give_up_waiting(task, slot)
        elif not dead.lost:
            task.deaths[slot] += 1
            if task.deaths[slot] >= DEATHS_ALLOWED:
                if not task.clients:
                    # Told to whoever asks for this job's answers: a job that began earlier is not to blame.
                    job.failure = WorkerError(_epitaph(task, why, code))
                    left = 1 + len(job.queue)
                    job.queue.clear()
                    self._done(job, left)
                    return
                self._blame(task, slot, _epitaph(task, why, code))
        if task.faults and not task.clients:
            job.answers.append((Answered(task, None, dead.desk.results[0], {}), None, 0))
            self._done(job, 1)
            return
        job.queue.appendleft(task)
        if not slow:
            warnings.warn(
                f"worker process {dead.process.pid} died ({_ending(why, code)}); its work is done again",
                RuntimeWarning,
                stacklevel=2,
            )

    def _blame(self, task: Task, slot: int | None, reason: str) -> None:
        """Leave out the client that workers died on; where it is not known which, find it."""
        if slot is not None:
            task.leave_out(slot, reason, "died")
        elif not task.cleared:
            task.alone = task.suspicion = True
        else:
            for each in list(task.message["slots"]):
                task.leave_out(each, f"cannot be trained in a block: {reason}", "died")

    def _give_up_waiting(self, task: Task, slot: int | None) -> None:
        if slot is None:
            task.alone = True
        else:
            task.leave_out(slot, too_slow(self._seconds), "too slow")


def _ending(why: str, exitcode: int | None) -> str:
    if why:
        return why
    if exitcode == SPOILED:
        return "a client had changed what cannot be put back in a process: open files, or torch's modes"
    if exitcode is not None and exitcode < 0:
        names = {number.value: number.name for number in signal.Signals}
        return f"signal {names.get(-exitcode, -exitcode)}"
    return f"exit code {exitcode}"


def _epitaph(task: Task, why: str, exitcode: int | None) -> str:
    text = (
        f"{DEATHS_ALLOWED} worker processes died on {'it' if task.clients else 'evaluation'} ({_ending(why, exitcode)})"
    )
    if exitcode == -9 and not why:
        text += "; the system may be out of memory: try fewer workers (engine.workers)"
    return text
