"""Worker processes, and how work is handed out to them.

A job is work on one model: the clients of a round, or the pieces of an evaluation. Several may be under way: their tasks go
out in the order in which the jobs began, and no worker waits for the end of one before it is given a task of the next.
"""

from __future__ import annotations

import json
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal, NamedTuple

import torch.multiprocessing

from fedquilt.core.block import Program
from fedquilt.core.execution import Execution
from fedquilt.core.federation import Federation
from fedquilt.core.params import ModelState
from fedquilt.core.tensors import to_bytes
from fedquilt.core.transform import State
from fedquilt.engines.shared import shared_models, write
from fedquilt.engines.worker import Desk, work
from fedquilt.errors import WorkerError

DEATHS_ALLOWED = 3

Start = Literal["fork", "spawn"]


@dataclass(eq=False)
class Task:
    """What one worker does at a time; `kept` is what its clients keep between rounds.

    The answer of a task that `fills` is values, in one of the worker's two places for them.
    """

    message: dict[str, Any]
    kept: Sequence[State | None] = ()
    fills: bool = False
    deaths: int = 0


class Answered(NamedTuple):
    """A task that is done: what the worker said, the values, and what was sent besides."""

    task: Task
    said: Any
    values: ModelState
    more: bytes | None


@dataclass(eq=False)
class _Job:
    model: ModelState
    announced: bytes
    queue: deque[Task]
    unanswered: int
    answers: deque[tuple[Answered, _Worker, int]] = field(default_factory=deque)
    slot: int | None = None
    failure: WorkerError | None = None


@dataclass(eq=False)
class _Worker:
    process: BaseProcess
    pipe: Connection
    desk: Desk
    free: list[int] = field(default_factory=lambda: [0, 1])
    place: int = 0
    job: _Job | None = None
    task: Task | None = None
    told: bytes = b""


class Pool:
    """Workers on one federation. One that dies is replaced, and its task is done again."""

    def __init__(
        self, federation: Federation, program: Program | None, execution: Execution, count: int, start: Start
    ) -> None:
        """Start the workers."""
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
            if answered.task.fills:
                worker.free.append(place)
                self._hand_out()

    def _listen(self) -> None:
        """Wait until workers answer or die; take their answers and give them new tasks."""
        busy = [worker for worker in self._workers if worker.task is not None]
        assert busy, "answers were not asked for in the order in which jobs began"
        ready = wait([worker.pipe for worker in busy] + [worker.process.sentinel for worker in busy])
        for worker in busy:
            if worker.pipe not in ready and worker.process.sentinel not in ready:
                continue
            try:
                said = json.loads(worker.pipe.recv_bytes())
                more = worker.pipe.recv_bytes() if isinstance(said, dict) and said.get("more") else None
            except (EOFError, OSError):
                self._replace(worker)
                continue
            job, task = worker.job, worker.task
            assert job is not None
            assert task is not None
            job.answers.append((Answered(task, said, worker.desk.results[worker.place], more), worker, worker.place))
            worker.job = worker.task = None
            self._done(job, 1)
        self._hand_out()

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
        try:
            worker.pipe.send_bytes(json.dumps(task.message | about).encode())
            if tell:
                worker.pipe.send_bytes(job.announced)
                worker.told = job.announced
            if memories:
                worker.pipe.send_bytes(to_bytes(memories))
        except OSError:
            return  # The worker has died; its sentinel will say so.

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
        desk = Desk(tuple(self._models), results)
        ours, theirs = context.Pipe()
        process = context.Process(  # type: ignore[attr-defined]
            target=work,
            args=(self._federation, self._program, self._execution, desk, theirs, self._start == "spawn"),
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
        if self._start == "fork":
            return
        try:
            worker.pipe.recv_bytes()
        except EOFError:
            self.close()
            raise WorkerError(
                "a worker process could not start. If the message above speaks of starting a new process: put what your "
                "script does under `if __name__ == '__main__':`, because workers import it"
            ) from None

    def _replace(self, dead: _Worker) -> None:
        dead.process.join()
        dead.pipe.close()
        job, task, place = dead.job, dead.task, self._workers.index(dead)
        assert job is not None
        assert task is not None
        self._workers[place] = self._hire()
        self._greet(self._workers[place])
        task.deaths += 1
        if task.deaths >= DEATHS_ALLOWED:
            # Told to whoever asks for this job's answers: a job that began earlier is not to blame.
            job.failure = WorkerError(_epitaph(task, dead.process.exitcode))
            left = 1 + len(job.queue)
            job.queue.clear()
            self._done(job, left)
            return
        warnings.warn(
            f"worker process {dead.process.pid} died (exit code {dead.process.exitcode}); its work is done again",
            RuntimeWarning,
            stacklevel=2,
        )
        job.queue.appendleft(task)


def _epitaph(task: Task, exitcode: int | None) -> str:
    clients = task.message.get("clients", [])
    what = f"client {', '.join(map(str, clients))}" if clients else "evaluation"
    text = f"{DEATHS_ALLOWED} worker processes died on {what} (exit code {exitcode})"
    if exitcode == -9:
        text += "; the system may be out of memory: try fewer workers (engine.workers)"
    return text
