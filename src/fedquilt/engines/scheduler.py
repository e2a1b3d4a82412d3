"""Who does what, and when: hands tasks out to a transport's lanes, does again what was lost, and finds who is to blame.

A job is work on one model: the clients of a round, or the pieces of an evaluation. Several may be under way: their tasks go
out in the order in which the jobs began, and no lane waits for the end of one before it is given a task of the next.
"""

from __future__ import annotations

import math
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from fedquilt.algorithm.updates import Fault, Kind
from fedquilt.base.errors import WorkerError
from fedquilt.compute.layout import ModelState, State
from fedquilt.engines.tasks import Reply, Task, answers
from fedquilt.engines.transport import Answered, Joined, Left, Transport
from fedquilt.round.hosting import too_slow

DEATHS_ALLOWED = 3

NOBODY = Reply([])
"""The reply to a task whose clients were all left out."""


class Done(NamedTuple):
    """A task that is done: its number in the job, the task as it was done, the reply, the clients left out of it.

    `seconds` is the CPU that it took, where that is known.
    """

    number: int
    task: Task
    reply: Reply
    faults: Sequence[Fault]
    seconds: float | None = None


@dataclass(eq=False)
class _Ticket:
    """A task on its way. `deaths` are counted by slot, those of a block under None.

    Once lanes have died on a block, or took too long, its clients are done alone. Who is at fault is then left out, the
    rest is `cleared`, and done together once more, since that decides the bits.
    """

    number: int
    task: Task
    deaths: Counter[int | None] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)
    cleared: bool = False

    def busy_with(self, at: int | None) -> int | None:
        """Return the slot of the client at a position, which may be out of range; None: it is one of several."""
        slots = self.task.slots
        if not self.task.single or (at is None and len(slots) > 1):
            return None
        return slots[min(max(at or 0, 0), len(slots) - 1)]

    def leave_out(self, slot: int, reason: str, kind: Kind) -> None:
        """Go on without the client in a slot."""
        client = self.task.clients[self.task.slots.index(slot)]
        self.faults.append(Fault(client, slot, reason, kind=kind))
        self.task = self.task.without(slot)

    def leave_out_all(self, reason: str, kind: Kind) -> None:
        """Give the task up."""
        for slot in list(self.task.slots):
            self.leave_out(slot, reason, kind)

    def do_alone(self) -> None:
        """Do the clients one by one from now on."""
        self.task = replace(self.task, alone=True)

    def blame(self, slot: int | None, reason: str) -> None:
        """Leave out the client that lanes died on; where it is not known which, find it."""
        if slot is not None:
            self.leave_out(slot, reason, "died")
        elif not (self.cleared or self.task.alone):
            self.do_alone()
        else:
            self.leave_out_all(f"cannot be trained in a block: {reason}", "died")

    def clear(self) -> bool:
        """Say whether a block must be done together once more: who is at fault alone is left out by now, or nobody is."""
        if not (self.task.fills and self.task.alone) or self.task.block == 1:
            return False
        self.task, self.cleared, self.deaths = replace(self.task, alone=False), True, Counter()
        return True


@dataclass(eq=False)
class _Job:
    number: int
    model: ModelState
    broadcast: State
    queue: deque[_Ticket]
    unanswered: int
    done: deque[tuple[Done, Answered | None]] = field(default_factory=deque)
    published: int | None = None
    failure: WorkerError | None = None


@dataclass(eq=False)
class _Lane:
    """A lane as the scheduler sees it: what it was `given`, of which it does the first now, and waits with the rest.

    `held` are the numbers of the jobs whose answers take its room.
    """

    about: Joined
    held: list[int] = field(default_factory=list)
    given: deque[tuple[_Job, _Ticket]] = field(default_factory=deque)
    since: float = 0.0
    seen: int = 0

    @property
    def ticket(self) -> _Ticket | None:
        """The task that it does now."""
        return self.given[0][1] if self.given else None

    def serves(self, task: Task) -> bool:
        return self.about.clients is None or all(client in self.about.clients for client in task.clients)

    def has_room(self, task: Task) -> bool:
        return not task.fills or len(self.held) < self.about.room

    def end_task(self) -> tuple[_Job, _Ticket]:
        """Be done with the first task; the next one begins now."""
        self.since, self.seen = time.monotonic(), 0
        return self.given.popleft()


class Answers(Iterator[Done]):
    """The answers of a job, as they come. Whoever has enough of them leaves out the clients that have not answered."""

    def __init__(self, each: Iterator[Done], leave_out_rest: Callable[[str], None]) -> None:
        """Go through `each`; `leave_out_rest` ends the tasks that are not done, for a reason."""
        self._each, self.leave_out_rest = each, leave_out_rest

    def __next__(self) -> Done:
        """Wait for an answer."""
        return next(self._each)


class Scheduler:
    """Work for the lanes of a transport. What a lane was doing when it left is done again, with the same bits.

    `seconds` is how long a client may take before it is left out.
    """

    def __init__(self, transport: Transport, seconds: float | None = None) -> None:
        """Begin with the lanes that are there."""
        self._transport, self._seconds = transport, seconds
        self._jobs: list[_Job] = []
        self._begun = 0
        self._lanes: dict[int, _Lane] = {}
        self._attend(0.0)

    @property
    def lanes(self) -> Mapping[int, Joined]:
        """The lanes that are there."""
        return {number: lane.about for number, lane in self._lanes.items()}

    def begin(self, model: ModelState, tasks: Sequence[Task], broadcast: State | None = None) -> Answers:
        """Begin tasks that work on one model; return their answers, in any order, each good until the next is asked for.

        Answers of jobs are asked for in the order in which the jobs began.
        """
        queue = deque(_Ticket(number, task) for number, task in enumerate(tasks))
        job = _Job(self._begun, model, broadcast or {}, queue, len(queue))
        self._begun += 1
        if tasks:
            self._jobs.append(job)
            self._hand_out()
        return Answers(self._answers(job), partial(self._leave_out_rest, job))

    def _answers(self, job: _Job) -> Iterator[Done]:
        while job.unanswered or job.done or job.failure is not None:
            if job.failure is not None:
                raise job.failure
            if not job.done:
                self._listen(job)
                continue
            done, answered = job.done.popleft()
            yield done
            if answered is not None:
                self._release(answered, job)
                self._hand_out()

    # What happens

    def _listen(self, job: _Job) -> None:
        """Wait for a job: until lanes join, answer, leave or take too long. Give free ones new tasks."""
        watched = [(lane, self._deadline(lane)) for lane in self._lanes.values() if lane.ticket is not None]
        if watched:
            ends = min(deadline for _, deadline in watched)
            self._attend(None if math.isinf(ends) else max(ends - time.monotonic(), 0.0))
        else:  # a lane must join, unless it is there, with no room but for what has not been asked for
            held = (number for lane in self._lanes.values() for number in lane.held)
            assert min(held, default=job.number) >= job.number, "answers were not asked for in the order of their jobs"
            if not self._attend(self._seconds) and self._seconds is not None:
                self._give_up()
        for lane, deadline in watched:
            if lane.ticket is not None and time.monotonic() >= deadline:
                self._look_after(lane)
        self._hand_out()

    def _attend(self, seconds: float | None) -> bool:
        """Wait for events, for so long at most; say whether there were any."""
        events = self._transport.wait(seconds)
        for event in events:
            if isinstance(event, Joined):
                self._lanes[event.lane] = _Lane(event)
            elif isinstance(event, Answered):
                self._hear(event)
            else:
                self._lane_left(event)
        return bool(events)

    def _hear(self, answered: Answered) -> None:
        lane = self._lanes.get(answered.lane)
        if lane is None or lane.ticket is None:  # from a lane that was stopped meanwhile, or twice: nobody waits for it
            return
        if not answers(lane.ticket.task, answered.reply):
            why = "the last one answered for clients it was not asked to train"
            left = Left(answered.lane, why, at=self._transport.progress(answered.lane))
            self._transport.stop(answered.lane)
            self._lane_left(left)
            return
        job, ticket = lane.end_task()
        receipt = answered if ticket.task.fills else None
        if ticket.clear():
            job.queue.appendleft(ticket)
            if receipt is not None:
                self._release(receipt, job)
            return
        self._finish(job, ticket, answered.reply, receipt, answered.seconds)

    def _lane_left(self, left: Left) -> None:
        """Take leave of a lane; its task is done again."""
        lane = self._lanes.pop(left.lane, None)
        if lane is None or lane.ticket is None:
            return
        job, ticket = lane.end_task()
        self._take_back(lane)
        slot = ticket.busy_with(left.at) if ticket.task.clients else None
        if slot is None and ticket.task.block == 1 and ticket.task.clients:
            ticket.do_alone()  # the same bits, and next time it is known who is to blame
        if not left.blameless:
            ticket.deaths[slot] += 1
            if ticket.deaths[slot] >= DEATHS_ALLOWED:
                on = "it" if ticket.task.clients else "evaluation"
                reason = f"{DEATHS_ALLOWED} {self._transport.lanes_are} died on {on} ({left.why})"
                reason += f"; {left.advice}" if left.advice else ""
                if not ticket.task.clients:
                    self._fail(job, reason)
                    return
                ticket.blame(slot, reason)
        if self._again(job, ticket):
            text = f"{lane.about.name} died ({left.why}); its work is done again"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    # Time

    def _deadline(self, lane: _Lane) -> float:
        """Say when a lane must be looked after: when its clients have had the time that they may take."""
        if self._seconds is None or lane.ticket is None or not lane.ticket.task.clients:
            return math.inf
        task = lane.ticket.task
        return lane.since + self._seconds * (1 if task.alone else len(task.clients) + len(task.gone))

    def _look_after(self, lane: _Lane) -> None:
        """End a lane whose time is up, unless it has gone on to another client meanwhile."""
        number = lane.about.lane
        at = self._transport.progress(number)
        if at is not None and at != lane.seen:
            lane.seen, lane.since = at, time.monotonic()
            return
        self._transport.stop(number)
        del self._lanes[number]
        job, ticket = lane.end_task()
        self._take_back(lane)
        slot = ticket.busy_with(at)
        if slot is None and not ticket.cleared:
            ticket.do_alone()
        elif slot is None:
            ticket.leave_out_all(too_slow(self._seconds), "too slow")
        else:
            ticket.leave_out(slot, too_slow(self._seconds), "too slow")
        self._again(job, ticket)

    def _give_up(self) -> None:
        """Leave out the clients that no lane which could do them has come for in time."""
        reason = f"no {self._transport.lanes_are} that could do it joined in {self._seconds:g} s"
        for job in list(self._jobs):
            for ticket in list(job.queue):
                if any(lane.serves(ticket.task) for lane in self._lanes.values()):
                    continue
                job.queue.remove(ticket)
                if not ticket.task.clients:
                    self._fail(job, reason)
                    break
                ticket.leave_out_all(reason, "absent")
                self._again(job, ticket)

    def _leave_out_rest(self, job: _Job, reason: str) -> None:
        """Leave out the clients of a job that have not answered; lanes that are at work for them are stopped."""
        for lane in [lane for lane in self._lanes.values() if any(given is job for given, _ in lane.given)]:
            self._transport.stop(lane.about.lane)
            del self._lanes[lane.about.lane]
            self._take_back(lane)
        for ticket in list(job.queue):
            job.queue.remove(ticket)
            ticket.leave_out_all(reason, "too slow")
            self._finish(job, ticket, NOBODY, None)

    # Where tasks go

    def _hand_out(self) -> None:
        """Give lanes the first tasks that they can do, free ones first. One with no room for an answer has to wait.

        A task is queued at a busy lane only while there is one for every lane: the last ones go to whoever is free first.
        """
        deepest = max((lane.about.queue for lane in self._lanes.values()), default=0)
        for depth in range(deepest):
            for lane in self._lanes.values():
                if len(lane.given) > depth or depth >= lane.about.queue:
                    continue
                if depth and sum(len(job.queue) for job in self._jobs) < len(self._lanes):
                    return
                self._give_first(lane)

    def _give_first(self, lane: _Lane) -> None:
        for job in self._jobs:
            ticket = next((ticket for ticket in job.queue if lane.serves(ticket.task)), None)
            if ticket is not None:
                if lane.has_room(ticket.task):
                    self._give(lane, job, ticket)
                return

    def _take_back(self, lane: _Lane) -> None:
        """Queue again what a lane that is gone had not begun."""
        for job, ticket in reversed(lane.given):
            job.queue.appendleft(ticket)
        lane.given.clear()

    def _give(self, lane: _Lane, job: _Job, ticket: _Ticket) -> None:
        job.queue.remove(ticket)
        if job.published is None:
            job.published = self._transport.publish(job.model, job.broadcast)
        if ticket.task.fills:
            lane.held.append(job.number)
        self._transport.give(lane.about.lane, ticket.task, job.published)
        lane.given.append((job, ticket))
        if len(lane.given) == 1:
            lane.since, lane.seen = time.monotonic(), 0

    def _release(self, answered: Answered, job: _Job) -> None:
        lane = self._lanes.get(answered.lane)
        if lane is not None:  # else the memory goes with the last view of it
            lane.held.remove(job.number)
            self._transport.release(answered.lane, answered.receipt)

    # How tasks end

    def _again(self, job: _Job, ticket: _Ticket) -> bool:
        """Do a task again, before all others, unless its clients were all left out; say whether it is done again."""
        if ticket.faults and not ticket.task.clients:
            self._finish(job, ticket, NOBODY, None)
            return False
        job.queue.appendleft(ticket)
        return True

    def _finish(
        self, job: _Job, ticket: _Ticket, reply: Reply, answered: Answered | None, seconds: float | None = None
    ) -> None:
        job.done.append((Done(ticket.number, ticket.task, reply, ticket.faults, seconds), answered))
        self._count(job, 1)

    def _fail(self, job: _Job, reason: str) -> None:
        """End a job for one of its tasks. Whoever asks for its answers is told: earlier jobs are not to blame."""
        job.failure = WorkerError(reason)
        tasks = 1 + len(job.queue)
        job.queue.clear()
        self._count(job, tasks)

    def _count(self, job: _Job, tasks: int) -> None:
        job.unanswered -= tasks
        if not job.unanswered:
            self._jobs.remove(job)
            if job.published is not None:
                self._transport.retire(job.published)
