"""The transport of a Ray cluster: actors as lanes, the model of a job in the object store, tasks as calls of methods.

Ray itself does nothing again (`max_restarts = 0`, `max_task_retries = 0`): what a dead actor had to do is given out again
by the scheduler, so that a client that ends its worker is found, and left out. Nodes that join during a run are used.
"""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from fedquilt.algorithm.state import ServerState
from fedquilt.base.errors import WorkerError
from fedquilt.base.text import visible
from fedquilt.compute.layout import ModelState, State
from fedquilt.compute.tensors import to_bytes
from fedquilt.engines.cluster.connection import Cluster, ClusterError
from fedquilt.engines.cluster.facts import Facts
from fedquilt.engines.cluster.packing import packed
from fedquilt.engines.cluster.worker import Worker, nbytes, received
from fedquilt.engines.encoding import ProtocolError, decode_reply, encode_task, read
from fedquilt.engines.execution import Execution
from fedquilt.engines.tasks import Task
from fedquilt.engines.transport import Answered, Event, Joined, Left
from fedquilt.round.site import Site

QUEUE = 2
"""Tasks that an actor has at a time: the next one is there when it has done the first."""

LOOKS = 2.0
"""Seconds between looks for nodes that have joined."""

STARVED = 120.0
"""Seconds after which a run ends that has no actor, and gets none."""

STARTS = 3
"""Actors that may die one after the other before any has begun to work."""


class Needs(NamedTuple):
    """What an actor takes of a node."""

    gpus: float = 0.0
    resources: tuple[tuple[str, float], ...] = ()

    def amounts(self) -> dict[str, float]:
        """Return what must be free, in Ray's names."""
        return {"CPU": 1.0} | ({"GPU": self.gpus} if self.gpus else {}) | dict(self.resources)

    def options(self) -> dict[str, Any]:
        """Return them as Ray takes them."""
        never = {"max_restarts": 0, "max_task_retries": 0}
        return {"num_cpus": 1, "num_gpus": self.gpus, "resources": dict(self.resources)} | never


@dataclass(eq=False)
class _Actor:
    """An actor; `starting` is its answer once it is ready, `tasks` what it was given, `at` where it is in the first one."""

    handle: Any
    starting: Any | None
    name: str = "an actor"
    tasks: deque[tuple[Task, Any]] = field(default_factory=deque)
    at: int | None = None

    @property
    def awaited(self) -> Any | None:
        """What is waited for."""
        return self.starting if self.starting is not None else self.tasks[0][1] if self.tasks else None


@dataclass
class Traffic:
    """Bytes that went from the driver into the object store and to actors, and came back from them."""

    site: int = 0
    out: int = 0
    back: int = 0


class Actors:
    """Actors of a cluster, each with a run's whole site; a `Transport`."""

    lanes_are = "actors"

    def __init__(
        self,
        cluster: Cluster,
        site: Site | Callable[[], Site],
        start: ServerState,
        execution: Execution,
        needs: Needs = Needs(),  # noqa: B008 - it is a tuple
        workers: int | None = None,
        compile_first: bool = False,
        mixed: bool = False,
    ) -> None:
        """Start actors, so many as asked for or as there are free CPUs, and wait until the first one is ready.

        Their site is put into the object store once, or each makes it by itself, if it is given as a function.
        """
        self._cluster, self._ray, self._execution, self._needs = cluster, cluster.ray, execution, needs
        self._wanted, self._compile_first, self._mixed = workers, compile_first, mixed
        whole = packed((site, start))
        self.traffic = Traffic(whole.nbytes)
        self._site = self._ray.put(whole)
        self._class = self._ray.remote(Worker).options(**needs.options())
        self._numbers = count()
        self._published: dict[int, Any] = {}
        self._events: list[Event] = []
        self._actors: dict[int, _Actor] = {}
        self.facts: dict[str, Facts] = {}
        self._failed, self._looked, self._served = 0, time.monotonic(), time.monotonic()
        for _ in range(workers or max(self._fits(), 1)):
            self._start()
        try:
            while not self._events:
                self._look_for_nodes()
                self._listen(LOOKS)
        except BaseException:
            self.close()
            raise

    def publish(self, model: ModelState, broadcast: State) -> int:
        """Put a model into the object store."""
        number = next(self._numbers)
        parts = model.vector.numpy(), model.buffers.numpy(), model.counters.numpy()
        message = (*parts, to_bytes(broadcast) if broadcast else b"")
        self.traffic.out += nbytes(message)
        self._published[number] = self._ray.put(message)
        return number

    def retire(self, published: int) -> None:
        """Let the object store forget a model."""
        del self._published[published]

    def give(self, lane: int, task: Task, published: int) -> None:
        """Call an actor; one that is gone says so when its answer is asked for."""
        actor = self._actors[lane]
        message = encode_task(task)
        self.traffic.out += nbytes(message)
        if task.alone and len(task.clients) > 1:
            method = actor.handle.do_alone.options(num_returns="streaming")
        else:
            method = actor.handle.do
        actor.tasks.append((task, method.remote(*message, self._published[published])))

    def wait(self, seconds: float | None) -> Sequence[Event]:
        """Wait for answers, deaths and new actors. While the only actors are starting, they are waited for."""
        until = None if seconds is None else time.monotonic() + seconds
        while not self._events:
            self._look_for_nodes()
            left = None if until is None else until - time.monotonic()
            self._listen(LOOKS if left is None else max(min(left, LOOKS), 0.0))
            over = until is not None and time.monotonic() >= until
            if over and (seconds == 0.0 or any(actor.starting is None for actor in self._actors.values())):
                break
        events, self._events = self._events, []
        return events

    def progress(self, lane: int) -> int | None:
        """Say where an actor is, if it does clients one by one."""
        return self._actors[lane].at

    def stop(self, lane: int) -> None:
        """Kill an actor, and start another."""
        self._ray.kill(self._actors.pop(lane).handle)
        self._start()

    def release(self, lane: int, receipt: int) -> None:
        """Do nothing: an answer's memory goes with it."""

    def close(self) -> None:
        """Let actors that have nothing to do wait for the next run, and end the others."""
        idle = self._cluster.idle.setdefault(self._needs, [])
        for actor in self._actors.values():
            if actor.starting is None and not actor.tasks:
                idle.append(actor.handle)
            else:
                self._ray.kill(actor.handle)
        self._actors.clear()
        self._published.clear()
        self._site = None

    # Actors that come and go

    def _start(self) -> None:
        idle = self._cluster.idle.get(self._needs)
        handle = idle.pop() if idle else self._class.remote()
        starting = handle.begin.remote(self._site, self._execution, self._compile_first)
        self._actors[next(self._numbers)] = _Actor(handle, starting)

    def _fits(self) -> int:
        """Return how many more actors have room on the cluster now."""
        return len(self._cluster.idle.get(self._needs, ())) + self._cluster.room(self._needs.amounts())

    def _look_for_nodes(self) -> None:
        """Start actors where there is room now, unless a number was asked for; end a run that has none, and gets none."""
        now = time.monotonic()
        starting = sum(actor.starting is not None for actor in self._actors.values())
        if len(self._actors) > starting:
            self._served = now
        if now - self._looked < LOOKS:
            return
        self._looked = now
        if now - self._served > STARVED:
            raise WorkerError(
                f"no actor could be started in {STARVED:g} s: the cluster {self._cluster.address} has no free CPU or no "
                "node any more. What is done is saved: add nodes, then `fedquilt resume` the run"
            )
        if self._wanted is None:
            for _ in range(self._fits() - starting):
                self._start()

    # What they say

    def _listen(self, seconds: float) -> None:
        """Wait for actors, for so long at most, and note what those who are heard from have done."""
        awaited = {actor.awaited: lane for lane, actor in self._actors.items() if actor.awaited is not None}
        if not awaited:
            time.sleep(seconds)
            return
        ready, rest = self._ray.wait(list(awaited), num_returns=1, timeout=seconds)
        if rest and ready:
            ready += self._ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        for each in ready:
            self._hear(awaited[each], self._actors[awaited[each]])

    def _hear(self, lane: int, actor: _Actor) -> None:
        try:
            if actor.starting is not None:
                self._join(lane, actor, *self._ray.get(actor.starting))
                return
            task, answer = actor.tasks[0]
            message = self._ray.get(next(answer) if hasattr(answer, "__next__") else answer)
            if isinstance(message, int):
                actor.at = message
                return
            self.traffic.back += nbytes(message)
            said, tensors, rows, seconds = received(message)
            reply = decode_reply(task, read(said), tensors, rows)
        except (self._ray.exceptions.RayError, ProtocolError, StopIteration) as error:
            self._lose(lane, actor, error)
            return
        actor.tasks.popleft()
        actor.at = None
        self._events.append(Answered(lane, reply, seconds=seconds))

    def _join(self, lane: int, actor: _Actor, process: int, facts: Facts) -> None:
        actor.name, actor.starting, self._failed = f"actor {process}", None, 0
        known = next(iter(self.facts.values()), facts)
        differing = known.differences(facts)
        if differing and not self._mixed:
            self._ray.kill(self._actors.pop(lane).handle)
            what = ", ".join(f"{name} {here} and {there}" for name, (here, there) in differing.items())
            warnings.warn(
                f"a node that differs from the others is not used ({what}): it could change the last bits of the result. "
                "With mixed = true it is used",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        self.facts[actor.name] = facts
        self._events.append(Joined(lane, actor.name, room=2 * QUEUE, queue=QUEUE))

    def _lose(self, lane: int, actor: _Actor, error: Exception) -> None:
        """Start an actor for one that died, or raised what no client can be blamed for."""
        del self._actors[lane]
        self._ray.kill(actor.handle)
        if actor.starting is None:
            self._events.append(Left(lane, _why(error), at=actor.at))
        else:
            self._failed += 1
            cause = getattr(error, "cause", None)
            if cause is not None:
                raise ClusterError(f"an actor cannot take the run over: {visible(str(cause), 300)}")
            if self._failed >= STARTS:
                raise ClusterError(f"{STARTS} actors died while they took the run over: {_why(error)}")
        self._start()


def _why(error: Exception) -> str:
    """Say in a few words how an actor ended: Ray's own text fills a page."""
    said = str(error)
    for sign, words in _ENDINGS.items():
        if sign in said:
            return words
    return visible(" ".join(said.split()) or type(error).__name__, 200)


_ENDINGS: Mapping[str, str] = {
    "out of memory": "its node was out of memory: use fewer workers (engine.workers)",
    "node has died": "its node died",
    "node is dead": "its node died",
    "worker process has died": "its process ended",
    "cannot be restored": "a client changed process settings that cannot be restored: open files, or torch's modes",
    "unavailable": "it cannot be reached",
}
