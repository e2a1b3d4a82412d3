"""What carries tasks to the lanes that do them, and answers back: all that a new engine has to bring.

A lane is whatever works on one task at a time: a process, an actor of a cluster, a site of a real federation. Everything
else, which task goes where, what is done again and whose fault a death is, is the scheduler's (`engines/scheduler.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from fedquilt.compute.layout import ModelState, State
from fedquilt.engines.tasks import Reply, Task


@dataclass(frozen=True)
class Joined:
    """A lane is ready for tasks. No two lanes of a session have the same number, not even one after the other.

    `name` is what messages call it. `room` is how many answers with models it can hold until they are released. A lane that
    holds the data of some clients alone names them. `queue` is how many tasks it may have at a time: it does and answers
    them in the order in which they were given, so that it need not wait for the next one to arrive.
    """

    lane: int
    name: str
    room: int = 2
    clients: Collection[int] | None = None
    queue: int = 1


@dataclass(frozen=True, eq=False)
class Answered:
    """A lane has done the first of its tasks. What is in the reply stays valid until it is released, under its `receipt`.

    `seconds` is the CPU that the work took, where the transport knows.
    """

    lane: int
    reply: Reply
    receipt: int = 0
    seconds: float | None = None


@dataclass(frozen=True)
class Left:
    """A lane is gone, and what it was doing with it: why, in words, and what may help.

    `at` is the place of the client, among those of its first task, that it was working for; None where that is not known.
    `blameless` if the task never reached it, so that its clients have nothing to do with the end.
    """

    lane: int
    why: str
    advice: str = ""
    at: int | None = 0
    blameless: bool = False


Event = Joined | Answered | Left


class Transport(Protocol):
    """Lanes that come and go, and the way to them. None of it is called from two threads."""

    @property
    def lanes_are(self) -> str:
        """What messages call several lanes, such as "worker processes"."""

    def publish(self, model: ModelState, broadcast: State) -> int:
        """Make a model, and what the server broadcasts besides it, known for the tasks of one job; return a number for it.

        It is called once per job, before the job's first task is given. Jobs one after the other may have the same model.
        """

    def retire(self, published: int) -> None:
        """Forget what was published: all tasks of the job are done."""

    def give(self, lane: int, task: Task, published: int) -> None:
        """Give a lane a task, after those of its `queue`. One that is gone is reported by `wait`, not from here."""

    def wait(self, seconds: float | None) -> Sequence[Event]:
        """Wait until something happens, for so long at most, and report it. Lanes that are there at first join here.

        Where nobody is left and nobody can join any more, raise a `WorkerError`.
        """

    def progress(self, lane: int) -> int | None:
        """Say for which client, by its place among those of its task, a lane is working, where it does them `alone`."""

    def stop(self, lane: int) -> None:
        """End a lane that takes too long or answers wrongly; it is not reported as `Left`. Another one may join for it."""

    def release(self, lane: int, receipt: int) -> None:
        """Take back the memory of an answer."""

    def close(self) -> None:
        """End all lanes."""
