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
            site = self.execution.placed(replace(federation.site, client_seconds=None))  # the scheduler has a clock
            with closing(SmallWorkers([(site, self.execution.program(site), None)] * self.lanes)) as workers:
                yield ScheduledSession.on(workers, federation.server, self.execution)


class SmallWorkers:
    lanes_are = "small workers"

    def __init__(
        self, hosts
    ):  # each is a site, its program, and the clients whose examples it has (None: all clients')
        self.lanes, self.tasks, self.models, self.events, self.numbers = {}, {}, {}, [], count()
        for host in hosts:
            self.start(host)

    def start(self, host):
        lane, (ours, theirs), at = next(self.numbers), multiprocessing.Pipe(), multiprocessing.Value("q")
        process = multiprocessing.get_context("fork").Process(target=work, args=(*host, theirs, at), daemon=True)
        process.start()
        theirs.close()
        self.lanes[lane] = process, ours, at, host
        self.events.append(Joined(lane, f"small worker {lane}", clients=host[2]))

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
                said, tensors = encoding.read(pipe.recv_bytes()), pipe.recv_bytes()
                self.events.append(Answered(lane, encoding.decode_reply(self.tasks.pop(lane), said, tensors)))
            except (EOFError, OSError, encoding.ProtocolError) as error:
                self.events.append(Left(lane, type(error).__name__, at=self.progress(lane)))
                self.stop(lane)
        events, self.events = self.events, []
        return events

    def progress(self, lane):
        return self.lanes[lane][2].value

    def stop(self, lane):
        self.tasks.pop(lane, None)
        process, *_, host = self.lanes.pop(lane)  # the last that knew its pipe
        process.kill()
        process.join()
        self.start(host)

    def release(self, lane, receipt): ...  # an answer's memory goes with it

    def close(self):
        for process, *_ in self.lanes.values():
            process.kill()
            process.join()


def work(site, program, clients, pipe, at):
    with pinned(), noting_signals():
        while True:
            task = encoding.decode_task(encoding.read(pipe.recv_bytes()), pipe.recv_bytes())
            state = encoding.decode_model(pipe.recv_bytes(), task.round, site.layout)
            reply = perform(site, program, task, state, lambda place: setattr(at, "value", place))
            for message in encoding.encode_reply(reply):
                pipe.send_bytes(message)
