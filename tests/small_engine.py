"""A complete engine, in under 100 lines: processes that are sent bytes and send bytes back, as another machine would."""

import multiprocessing
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from multiprocessing.connection import wait

from fedquilt.compute.interrupts import noting_signals
from fedquilt.compute.pinned import pinned
from fedquilt.engines import encoding
from fedquilt.engines.executing import Executing
from fedquilt.engines.perform import perform
from fedquilt.engines.session import ScheduledSession
from fedquilt.engines.transport import Answered, Joined, Left


@dataclass(frozen=True)
class SmallEngine(Executing):
    lanes: int = 2

    @contextmanager
    def open(self, federation):
        with pinned():
            federation = self.execution.placed(federation)
            with closing(SmallWorkers(federation, self.execution.program(federation), self.lanes)) as workers:
                yield ScheduledSession.on(workers, federation, self.execution)


class SmallWorkers:
    lanes_are = "small workers"

    def __init__(self, federation, program, lanes):
        self.work, self.numbers = (replace(federation, client_seconds=None), program), count()
        self.lanes, self.tasks, self.models, self.events = {}, {}, {}, []
        for _ in range(lanes):
            self.hire()

    def hire(self):
        lane, (ours, theirs), at = next(self.numbers), multiprocessing.Pipe(), multiprocessing.Value("q")
        process = multiprocessing.get_context("fork").Process(target=work, args=(*self.work, theirs, at), daemon=True)
        process.start()
        theirs.close()
        self.lanes[lane] = process, ours, at
        self.events.append(Joined(lane, f"small worker {lane}"))

    def publish(self, model, broadcast):
        self.models[number := next(self.numbers)] = encoding.encode_model(model, broadcast)
        return number

    def retire(self, published):
        del self.models[published]

    def give(self, lane, task, published):
        self.tasks[lane] = task
        with suppress(OSError):  # if it is gone, `wait` will find out
            for message in (*encoding.encode_task(task), self.models[published]):
                self.lanes[lane][1].send_bytes(message)

    def wait(self, seconds):
        pipes = {self.lanes[lane][1]: lane for lane in self.tasks}
        for pipe in [] if self.events else wait(pipes, seconds):
            lane = pipes[pipe]
            try:
                reply = encoding.decode_reply(self.tasks[lane], encoding.read(pipe.recv_bytes()), pipe.recv_bytes())
                self.tasks.pop(lane)
                self.events.append(Answered(lane, reply))
            except (EOFError, OSError, encoding.ProtocolError) as error:
                self.events.append(Left(lane, type(error).__name__, at=self.progress(lane)))
                self.stop(lane)
        events, self.events = self.events, []
        return events

    def progress(self, lane):
        return self.lanes[lane][2].value

    def stop(self, lane):
        self.tasks.pop(lane, None)
        process, *_ = self.lanes.pop(lane)  # the last that knew its pipe
        process.kill()
        process.join()
        self.hire()

    def release(self, lane, receipt): ...  # an answer's memory goes with it

    def close(self):
        for process, *_ in self.lanes.values():
            process.kill()
            process.join()


def work(federation, program, pipe, at):
    with pinned(), noting_signals():
        while True:
            task = encoding.decode_task(encoding.read(pipe.recv_bytes()), pipe.recv_bytes())
            state = encoding.decode_model(pipe.recv_bytes(), task.round, federation.layout)
            reply = perform(federation, program, task, state, lambda place: setattr(at, "value", place))
            for message in encoding.encode_reply(reply):
                pipe.send_bytes(message)
