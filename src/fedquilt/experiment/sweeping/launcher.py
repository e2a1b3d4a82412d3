"""The process that trials are started from: it has imported everything, runs nothing itself, and has no threads.

Importing PyTorch takes seconds; a process forked from one that has done so is ready at once, and as fresh as a new one:
trials cannot disturb one another, whatever their code leaves behind. Orders come in through standard input, a line each;
events go out through standard output, into which trials write themselves. When the input closes, the sweep is gone: what
runs is asked to save and to end.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module

from fedquilt.base import interrupts
from fedquilt.experiment.sweeping.executors import Ended, Order, decoded, written

IMPORTED = "fedquilt.experiment.sweeping.trial_process"
"""What every trial needs."""

FORKS = sys.platform == "linux"
"""Whether trials are forked; elsewhere, libraries of the system do not survive that, and each imports everything anew."""

SAVING = 20.0
"""Seconds that trials have to save and end once the sweep is gone."""

START = "import sys; sys.path[:] = {path!r}; from fedquilt.experiment.sweeping.launcher import {main}; {main}()"


def command(main: str) -> list[str]:
    """Return the command that starts such a process; it finds modules where this one does."""
    return [sys.executable, "-c", START.format(path=sys.path, main=main)]


def main() -> None:
    """Take orders until there are no more."""
    # They reach the whole group, and are for the sweep and its trials to handle; what the sweep ignores, trials do too.
    heeded = {each for each in interrupts.SIGNALS if signal.getsignal(each) is not signal.SIG_IGN}
    for each in interrupts.SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    if FORKS:
        import_module(IMPORTED)
    _Launcher(FORKS, heeded | {signal.SIGTERM}).run()


def alone() -> None:
    """Run the one trial that is ordered: where processes cannot be forked, each is a new one."""
    for each in interrupts.SIGNALS:  # the process that starts this one ignores them
        signal.signal(each, signal.default_int_handler if each == signal.SIGINT else signal.SIG_DFL)
    from fedquilt.experiment.sweeping.trial_process import perform

    perform(decoded(sys.stdin.buffer.readline()), os.dup(1))


class _Launcher:
    def __init__(self, fork: bool, heeded: set[signal.Signals]) -> None:
        self._fork, self._heeded = fork, heeded
        self._children: dict[int, int] = {}  # process ids by the numbers of trials
        self._wake, woken = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(self._wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(woken)

    def run(self) -> None:
        buffered, there = b"", True
        while there:
            ready, _, _ = select.select([0, self._wake], [], [])
            if self._wake in ready:
                os.read(self._wake, 4096)
            if 0 in ready:
                read = os.read(0, 2**16)
                there = bool(read)
                *lines, buffered = (buffered + read).split(b"\n")
                for line in lines:
                    self._obey(line)
            self._reap()
        self._end()

    def _obey(self, line: bytes) -> None:
        said = json.loads(line)
        if "signal" in said:
            child = self._children.get(said["number"])
            if child is not None:
                os.kill(child, said["signal"])
            return
        order = decoded(line)
        try:
            self._children[order.number] = self._forked(order) if self._fork else _started(line)
        except OSError as error:  # no more processes, or no memory
            _report(Ended(order.number, None, None, error.errno))

    def _forked(self, order: Order) -> int:
        # A signal that arrives before the trial has taken signals over waits for that.
        signal.pthread_sigmask(signal.SIG_BLOCK, interrupts.SIGNALS)
        child = os.fork()
        if child:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, interrupts.SIGNALS)
            return child
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in self._heeded:
                signal.signal(each, signal.default_int_handler if each == signal.SIGINT else signal.SIG_DFL)
            pipe = os.dup(1)
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, 0)
            os.dup2(nothing, 1)
            import_module(IMPORTED).perform(order, pipe)
            code = 0
        finally:
            os._exit(code)

    def _reap(self) -> None:
        for number, child in list(self._children.items()):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                del self._children[number]
                _report(Ended(number, None, None, os.waitstatus_to_exitcode(status)))

    def _end(self) -> None:
        """Ask what runs to save and to end, and see to it that it does."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for child in self._children.values():
                os.kill(child, number)
            until = time.monotonic() + SAVING
            while self._children and time.monotonic() < until:
                time.sleep(0.02)
                self._reap()


def _report(event: Ended) -> None:
    with suppress(OSError):  # nobody reads it any more, which is noticed by the input
        os.write(1, written(event))


def _started(line: bytes) -> int:
    process = subprocess.Popen(command("alone"), stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(line + b"\n")
    process.stdin.close()
    process.returncode = 0  # it is waited for by its id
    return process.pid
