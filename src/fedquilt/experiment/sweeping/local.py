"""Trials on this machine, each a process of its own that is forked from one that is ready."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Sequence

from fedquilt.base import interrupts
from fedquilt.base.errors import WorkerError
from fedquilt.experiment.sweeping.executors import Ended, Order, TrialEvent, read_event
from fedquilt.experiment.sweeping.launcher import SAVING, command

LOOK = 1.0
"""Seconds between looks at whether the process that trials come from is still there."""

MOST_STARTS = 3


class LocalExecutor:
    """A `Executor`: this machine."""

    def __init__(self) -> None:
        """Start the process that trials come from; it makes itself ready meanwhile."""
        self._running: dict[int, Ended | None] = {}  # and how it has said that it ended
        self._starts = 0
        self._open()

    def _open(self) -> None:
        self._starts += 1
        self._launcher = subprocess.Popen(command("main"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self._launcher.stdin is not None
        assert self._launcher.stdout is not None
        self._orders, self._told = self._launcher.stdin, self._launcher.stdout
        self._buffered = b""

    def start(self, order: Order) -> None:
        """Order a trial."""
        self._running[order.number] = None
        self._say(order.encoded())

    def stop(self, number: int, at_once: bool = False) -> None:
        """Send the trial's process a signal."""
        if number in self._running:
            sent = signal.SIGKILL if at_once else signal.SIGTERM
            self._say(json.dumps({"number": number, "signal": int(sent)}).encode() + b"\n")

    def _say(self, line: bytes) -> None:
        left = memoryview(line)
        try:
            while left:
                left = left[os.write(self._orders.fileno(), left) :]
        except BrokenPipeError:
            pass  # it is gone, which `wait` sees

    def wait(self, seconds: float) -> Sequence[TrialEvent]:
        """Wait for lines from trials."""
        with interrupts.allowed():
            ready, _, _ = select.select([self._told], [], [], min(seconds, LOOK))
        if not ready:
            return [] if self._launcher.poll() is None else self._lost()
        read = os.read(self._told.fileno(), 2**20)
        if not read:
            return self._lost()
        *lines, self._buffered = (self._buffered + read).split(b"\n")
        return [event for line in lines if (event := self._noted(read_event(line))) is not None]

    def _noted(self, event: TrialEvent) -> TrialEvent | None:
        """Keep what a trial says of its end until its process is gone, and with it the lock of its folder."""
        if not isinstance(event, Ended):
            return event
        if event.how is not None:
            self._running[event.number] = event
            return None
        return self._running.pop(event.number, None) or event

    def _lost(self) -> Sequence[TrialEvent]:
        """Begin anew after the process that trials come from has died: trials notice it, save what is done and end."""
        lost = [said or Ended(number, "interrupted") for number, said in self._running.items()]
        self._running.clear()
        self._close()
        if self._starts >= MOST_STARTS:
            raise WorkerError(
                f"the process that trials are started from died {MOST_STARTS} times; see its messages above"
            )
        self._open()
        return lost

    def close(self) -> None:
        """End what still runs."""
        self._close()

    def _close(self) -> None:
        if not self._running and self._launcher.poll() is None:
            self._launcher.kill()  # nothing is to be saved, and it may still be importing
        self._orders.close()
        self._told.close()  # whoever still writes notices that nobody reads
        try:
            self._launcher.wait(2 * SAVING + 1)
        except subprocess.TimeoutExpired:
            self._launcher.kill()
            self._launcher.wait()
