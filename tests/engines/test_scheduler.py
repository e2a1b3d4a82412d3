"""The scheduler alone, on lanes that are a few lines of memory: order, deaths, blame, time, late joins. In milliseconds."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import pytest
import torch

from fedquilt.algorithm.updates import Fault
from fedquilt.base.errors import WorkerError
from fedquilt.compute.layout import ModelState
from fedquilt.engines.scheduler import Scheduler
from fedquilt.engines.tasks import Reply, Task
from fedquilt.engines.transport import Answered, Event, Joined, Left, Transport
from fedquilt.round.evaluation import Counted

pytestmark = pytest.mark.filterwarnings("ignore:lane .* died:RuntimeWarning")

MODEL = ModelState(torch.zeros(1), torch.zeros(0), torch.zeros(0, dtype=torch.int64))


def model() -> ModelState:
    return ModelState(*(part.clone() for part in (MODEL.vector, MODEL.buffers, MODEL.counters)))


@dataclass
class Memory:
    """Lanes that do as `act` says: it is given a task and returns a reply, or None for a task that never ends.

    It raises an EOFError with the place of the client that the lane dies on, or a ConnectionError if nobody is to blame.
    Every wait reports what one lane has done, first come first served; whoever dies is replaced, if `hires`.
    So many join `late`, once nobody has anything to do.
    """

    act: object
    lanes: int = 2
    hires: bool = True
    room: int = 2
    late: int = 0
    queue: int = 1

    def __post_init__(self) -> None:
        self.lanes_are = "lanes"
        self.events: deque[Event] = deque()
        self.at_work: dict[int, deque[Task]] = {}
        self.free: dict[int, int] = {}
        self.alive: set[int] = set()
        self.given: list[tuple[int, Task, int]] = []
        self.published: dict[int, ModelState] = {}
        self.numbers = iter(range(10_000))
        self.closed = False
        for _ in range(self.lanes):
            self.join()

    def join(self, clients=None) -> int:
        lane = next(self.numbers)
        self.alive.add(lane)
        self.free[lane] = self.room
        self.events.append(Joined(lane, f"lane {lane}", self.room, clients, self.queue))
        return lane

    def publish(self, model, broadcast) -> int:
        number = next(self.numbers)
        self.published[number] = model
        return number

    def retire(self, published) -> None:
        del self.published[published]

    def give(self, lane, task, published) -> None:
        assert lane in self.alive
        assert len(self.at_work.get(lane, ())) < self.queue, "it has as many tasks as it may"
        assert published in self.published
        self.free[lane] -= task.fills
        assert self.free[lane] >= 0, "no room for its answer"
        self.given.append((lane, task, published))
        self.at_work.setdefault(lane, deque()).append(task)

    def wait(self, seconds):
        if not (self.events or self.at_work) and self.late:
            self.late -= 1
            self.join()
        if not self.events:
            for lane, tasks in list(self.at_work.items()):
                try:
                    reply = self.act(tasks[0])
                except EOFError as error:
                    self.leave(lane, "signal SIGKILL", at=error.args[0] if error.args else 0)
                    break
                except ConnectionError:
                    self.leave(lane, "it was gone", blameless=True)
                    break
                if reply is not None:
                    tasks.popleft()
                    if not tasks:
                        del self.at_work[lane]
                    self.events.append(Answered(lane, reply))
                    break
        assert self.events or seconds is not None, "it would wait for ever"
        return [self.events.popleft() for _ in range(len(self.events))]

    def leave(self, lane, why, **about) -> None:
        self.at_work.pop(lane, None)
        self.alive.remove(lane)
        self.events.append(Left(lane, why, **about))
        if self.hires:
            self.join()

    def progress(self, lane) -> int:
        return 0

    def stop(self, lane) -> None:
        self.at_work.pop(lane, None)
        self.alive.remove(lane)
        self.join()

    def release(self, lane, receipt) -> None:
        self.free[lane] += 1

    def close(self) -> None:
        self.closed = True


def done(task: Task) -> Reply:
    """The reply of a lane that does what it is asked; a fault stands for an update, which has tensors."""
    if task.do == "train":
        return Reply([Fault(client, slot, "done") for client, slot in zip(task.clients, task.slots, strict=True)])
    return Reply(
        [Counted(float(task.rows[0]), 1, 1)] if task.do == "evaluate" else [Counted(1.0, 1, 1)] * len(task.clients)
    )


def train(*clients: int, alone: bool = False) -> Task:
    """A block of clients to train."""
    slots, states = [10 * client for client in clients], [None] * len(clients)
    return Task("train", 1, list(clients), slots, states, alone, block=len(clients))


def names(pieces) -> list[list[int]]:
    return [[result.client for result in piece.reply.results] for piece in pieces]


def dying(*guilty: int, times: int = 10_000, together: bool = False):
    """Die on some clients, so many times; alone, at their place; or only when several are done together."""
    left = [times]

    def act(task: Task) -> Reply:
        places = [place for place, client in enumerate(task.clients) if client in guilty]
        if places and left[0] and not (together and task.single):
            left[0] -= 1
            raise EOFError(places[0])
        return done(task)

    return act


def test_a_transport_is_what_the_protocol_says() -> None:
    transport: Transport = Memory(done)
    assert {name for name in vars(Transport) if not name.startswith("_")} <= {*vars(Memory), *vars(transport)}


def test_tasks_go_out_in_order_and_jobs_one_after_the_other():
    memory = Memory(done, lanes=2)
    scheduler = Scheduler(memory)
    first = scheduler.begin(model(), [train(0), train(1), train(2)])
    second = scheduler.begin(model(), [Task("evaluate", rows=(row, row + 1)) for row in range(3)])
    assert names(first) == [[0], [1], [2]]
    assert [piece.number for piece in second] == [0, 1, 2]
    assert [task.do for _, task, _ in memory.given] == ["train"] * 3 + ["evaluate"] * 3
    assert memory.published == {}


def test_a_lane_goes_on_with_the_next_job_while_another_is_still_at_the_first():
    """The first lane never ends its task before the second job has been begun by the other one."""
    evaluated = []

    def act(task):
        if task.clients == [0] and not evaluated:
            return None
        evaluated.extend([task] if task.do == "evaluate" else [])
        return done(task)

    scheduler = Scheduler(Memory(act, lanes=2))
    first = scheduler.begin(model(), [train(0), train(1)])
    scheduler.begin(model(), [Task("evaluate", rows=(0, 1))])
    assert names(first) == [[1], [0]]


def test_a_model_is_published_once_a_job_and_only_when_its_first_task_is_given():
    memory = Memory(done, lanes=1)
    scheduler = Scheduler(memory)
    first, second = scheduler.begin(model(), [train(0), train(1)]), scheduler.begin(model(), [train(2)])
    assert len(memory.published) == 1
    assert names(first) + names(second) == [[0], [1], [2]]
    assert len({published for *_, published in memory.given}) == 2


def test_answers_that_nobody_has_taken_take_room():
    """`Memory` refuses what it has no room for; a lane with room for one waits until that one is released."""
    memory = Memory(done, lanes=1, room=1)
    pieces = Scheduler(memory).begin(model(), [train(0), train(1)])
    next(pieces)
    assert len(memory.given) == 1
    next(pieces)
    assert len(memory.given) == 2
    assert list(pieces) == []
    assert memory.free == {0: 1}


def test_answers_are_asked_for_in_the_order_of_their_jobs():
    """Or the first job's would take the room of the second's for ever; it is noticed."""
    scheduler = Scheduler(Memory(done, lanes=1))
    scheduler.begin(model(), [train(0), train(1)])
    second = scheduler.begin(model(), [train(2)])
    with pytest.raises(AssertionError, match="in the order of their jobs"):
        list(second)


def test_a_task_waits_for_a_new_lane_while_the_next_jobs_answers_take_the_room_of_the_other() -> None:
    """The lane that is left has gone ahead until its room was full; the one that joins does what the lost one was doing."""
    others: list[Task] = []

    def act(task):
        if task.clients != [0]:
            others.append(task)
        elif len(others) < 2:
            return None
        elif memory.alive == {0, 1}:
            raise EOFError
        return done(task)

    memory = Memory(act, lanes=2, hires=False, late=1)
    scheduler = Scheduler(memory)
    first, second = scheduler.begin(model(), [train(0)]), scheduler.begin(model(), [train(1), train(2), train(3)])
    assert names(first) == [[0]]
    assert [lane for lane, task, _ in memory.given if task.clients == [0]] == [0, max(memory.alive)]
    assert names(second) == [[1], [2], [3]]


def test_what_a_lane_was_doing_when_it_died_is_done_again_first():
    memory = Memory(dying(0, times=2), lanes=1)
    with pytest.warns(RuntimeWarning, match=r"lane 0 died \(signal SIGKILL\); its work is done again"):
        assert names(Scheduler(memory).begin(model(), [train(0), train(1)])) == [[0], [1]]
    assert [task.clients for _, task, _ in memory.given] == [[0], [0], [0], [1]]


def test_tasks_are_queued_at_lanes_while_there_is_one_for_every_lane():
    memory = Memory(lambda task: None, lanes=2, queue=2, room=9)
    Scheduler(memory).begin(model(), [train(client) for client in range(5)])
    assert [(lane, task.clients[0]) for lane, task, _ in memory.given] == [(0, 0), (1, 1), (0, 2), (1, 3)]
    memory = Memory(lambda task: None, lanes=2, queue=2, room=9)
    Scheduler(memory).begin(model(), [train(client) for client in range(3)])
    assert [lane for lane, *_ in memory.given] == [0, 1]  # the third goes to whoever is free first


def test_all_tasks_of_a_lane_that_died_are_done_again_and_only_the_first_is_blamed():
    memory = Memory(dying(0), lanes=1, queue=2, room=9)
    pieces = sorted(Scheduler(memory).begin(model(), [train(0), train(1), train(2)]))
    assert [[fault.client for fault in piece.faults] for piece in pieces] == [[0], [], []]
    assert names(pieces) == [[], [1], [2]]
    assert [task.clients[0] for _, task, _ in memory.given] == [0, 1, 0, 1, 0, 1, 1, 2]


def test_a_group_whose_lane_died_is_done_client_by_client_and_so_the_guilty_one_is_found():
    """Where a lane does not say which client it is at, unless it does them alone; done alone, they have the same bits."""
    inner = dying(1)

    def act(task):
        try:
            return inner(task)
        except EOFError as error:
            raise EOFError(error.args[0] if task.alone else None) from None

    memory = Memory(act, lanes=1)
    (piece,) = Scheduler(memory).begin(model(), [replace(train(0, 1, 2), block=1)])
    assert [(fault.client, fault.reason) for fault in piece.faults] == [(1, "3 lanes died on it (signal SIGKILL)")]
    assert names([piece]) == [[0, 2]]
    assert [(task.alone, len(task.clients)) for _, task, _ in memory.given] == [(False, 3), *[(True, 3)] * 3, (True, 2)]


def test_after_three_deaths_a_client_is_left_out():
    (first, second) = sorted(Scheduler(Memory(dying(0))).begin(model(), [train(0), train(1)]))
    assert [(fault.client, fault.slot, fault.kind) for fault in first.faults] == [(0, 0, "died")]
    assert first.faults[0].reason == "3 lanes died on it (signal SIGKILL)"
    assert (first.reply.results, second.faults) == ([], [])


def test_three_deaths_of_an_evaluation_end_its_own_job_alone():
    def act(task):
        if task.do == "evaluate":
            raise EOFError
        return done(task)

    scheduler = Scheduler(Memory(act))
    first, second, third = (
        scheduler.begin(model(), tasks)
        for tasks in ([train(0)], [Task("evaluate", rows=(row, row + 1)) for row in range(4)], [train(1)])
    )
    assert names(first) == [[0]]
    with pytest.raises(WorkerError, match="3 lanes died on evaluation"):
        list(second)
    assert names(third) == [[1]]


def test_the_guilty_client_of_a_block_is_found_and_the_others_are_not_to_blame():
    memory = Memory(dying(3))
    (piece,) = Scheduler(memory).begin(model(), [train(1, 2, 3, 4)])
    assert [(fault.client, fault.kind) for fault in piece.faults] == [(3, "died")]
    assert [result.client for result in piece.reply.results] == [1, 2, 4]
    assert [task.alone for _, task, _ in memory.given] == [False] * 3 + [True] * 4 + [False]


def test_two_guilty_clients_of_a_block_are_both_found():
    (piece,) = Scheduler(Memory(dying(1, 3))).begin(model(), [train(1, 2, 3, 4)])
    assert sorted(fault.client for fault in piece.faults) == [1, 3]
    assert [result.client for result in piece.reply.results] == [2, 4]


def test_a_block_that_dies_by_chance_is_done_together_in_the_end():
    memory = Memory(dying(3, times=3))
    (piece,) = Scheduler(memory).begin(model(), [train(1, 2, 3, 4)])
    assert piece.faults == []
    assert [task.alone for _, task, _ in memory.given] == [False] * 3 + [True, False]
    assert memory.free[max(memory.alive)] == 2, "what was done alone was released"


def test_a_block_that_dies_only_together_is_left_out():
    (piece,) = Scheduler(Memory(dying(3, together=True))).begin(model(), [train(1, 2, 3)])
    assert [fault.client for fault in piece.faults] == [1, 2, 3]
    assert all(fault.reason.startswith("cannot be trained in a block: 3 lanes died on it") for fault in piece.faults)


def test_a_lane_that_was_gone_before_its_task_came_is_not_held_against_the_client():
    gone = iter([True] * 5)

    def act(task):
        if next(gone, False):
            raise ConnectionError
        return done(task)

    (piece,) = Scheduler(Memory(act, lanes=1)).begin(model(), [train(0)])
    assert (piece.faults, names([piece])) == ([], [[0]])


def test_clients_that_take_too_long_are_left_out_and_their_lane_is_replaced():
    memory = Memory(lambda task: None if 1 in task.clients else done(task), lanes=1)
    (slow, quick) = Scheduler(memory, seconds=0.001).begin(model(), [train(1), train(2)])
    assert [(fault.client, fault.kind) for fault in slow.faults] == [(1, "too slow")]
    assert names([quick]) == [[2]]
    assert memory.given[0][0] != memory.given[1][0]


def test_a_block_that_takes_too_long_is_done_one_by_one_and_then_together_again():
    """Who is too slow alone is left out; the others are done together once more, since that decides the bits."""
    first = [True]

    def slow_once(task):
        return done(task) if task.alone or not first or first.pop() is None else None

    memory = Memory(slow_once, lanes=1)
    (piece,) = Scheduler(memory, seconds=0.001).begin(model(), [train(1, 2)])
    assert (piece.faults, names([piece])) == ([], [[1, 2]])


def test_lanes_may_join_late():
    memory = Memory(done, lanes=0)
    pieces = Scheduler(memory).begin(model(), [train(0), train(1)])
    memory.join()
    assert names(pieces) == [[0], [1]]


def test_a_lane_that_leaves_while_it_has_no_task_costs_nothing():
    memory = Memory(done, lanes=2, hires=False)
    scheduler = Scheduler(memory)
    pieces = scheduler.begin(model(), [train(0)])
    memory.leave(1, "it went home")
    assert names(pieces) == [[0]]
    assert list(scheduler.lanes) == [0]
    assert names(scheduler.begin(model(), [train(1), train(2)])) == [[1], [2]]


def test_a_task_goes_to_a_lane_that_holds_its_clients_data():
    memory = Memory(done, lanes=0)
    homes = {memory.join({0, 2}): {0, 2}, memory.join({1}): {1}}
    assert sorted(names(Scheduler(memory).begin(model(), [train(0), train(1), train(2)]))) == [[0], [1], [2]]
    assert all(set(task.clients) <= homes[lane] for lane, task, _ in memory.given)


def test_clients_that_nobody_comes_for_are_left_out_in_time():
    memory = Memory(done, lanes=0)
    memory.join({0})
    pieces = sorted(Scheduler(memory, seconds=0.001).begin(model(), [train(0), train(1)]))
    assert names(pieces) == [[0], []]
    assert [(fault.client, fault.kind) for fault in pieces[1].faults] == [(1, "absent")]


NONSENSE = {
    "another slot": lambda task: [Fault(task.clients[0], 99, "done")],
    "another client": lambda task: [Fault(99, task.slots[0], "done")],
    "twice": lambda task: [*done(task).results] * 2,
    "nothing": lambda task: [],
    "a count": lambda task: [Counted(1.0, 1, 1)],
}


@pytest.mark.parametrize("name", NONSENSE)
def test_a_lane_that_answers_for_others_is_replaced_and_its_client_named(name):
    memory = Memory(lambda task: Reply(NONSENSE[name](task)) if task.clients == [0] else done(task), lanes=1)
    first, second = sorted(Scheduler(memory).begin(model(), [train(0), train(1)]))
    assert "answered for clients it was not asked to train" in first.faults[0].reason
    assert (first.faults[0].client, names([second])) == (0, [[1]])


def test_answers_that_come_twice_or_from_lanes_that_are_gone_are_not_heard():
    memory = Memory(done, lanes=1)
    scheduler = Scheduler(memory)
    memory.events.extend([Answered(0, Reply([])), Answered(77, Reply([])), Left(78, "gone")])
    pieces = scheduler.begin(model(), [train(0)])
    memory.events.clear()
    assert names(pieces) == [[0]]
    memory.events.append(Answered(0, done(train(0))))
    assert names(scheduler.begin(model(), [train(1)])) == [[1]]
