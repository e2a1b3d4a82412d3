"""A running program: asked for rounds, heard, and weighed together with its children."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from environments import SkippedError

TURN, MOST = 0.3, 20
"""Seconds that a turn should last, if its rounds are shorter, and the most rounds of one."""

PATIENCE = 300.0
"""Seconds after which a start or a round counts as stuck."""


@dataclass
class Program:
    """A program that does a round when asked."""

    name: str
    command: list[str]
    environment: dict[str, str]
    longest: float
    """Seconds that a round may take."""
    most: int = MOST
    """Rounds that a turn may have."""
    seconds: list[float] = field(default_factory=list)
    start_up: float = 0.0
    first: float = 0.0
    """Seconds of the first round."""
    last: float = 0.0
    """Seconds of a round in the last turn."""
    peak: int = 0
    apart: float = float("inf")
    """How far its model is from the plain loop's, after a round on the same batches."""
    about: str = ""
    """How it went about the workload, in its own words."""

    def __post_init__(self) -> None:
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        reading, writing = os.pipe()
        self.answers = os.fdopen(reading)
        begun = time.perf_counter()
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            pass_fds=[writing],
            env=self.environment | {"PEERS_ANSWERS": str(writing)},
            text=True,
            start_new_session=True,
        )
        os.close(writing)
        try:
            with self.watched():
                self.heard()
                self.first = self.turn(record=False)
        except BaseException:
            self.stop()
            raise
        self.start_up = time.perf_counter() - begun

    @contextlib.contextmanager
    def watched(self):
        """Weigh the program five times a second meanwhile."""
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.2):
                self.weigh()

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()

    def _tree(self) -> list[psutil.Process]:
        try:
            own = psutil.Process(self.process.pid)
            return [own, *own.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def send(self, signal_: signal.Signals) -> None:
        """Send a signal to the process and its children, by their numbers."""
        for process in self._tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal_)

    def weigh(self) -> None:
        """Note the memory of the process tree, every page once.

        Private and shared memory: the processes' proportional shares, added up. Mapped files, such as libraries: those of
        the process that has most of them, since proportional shares would let programs of one environment help each other.
        """
        own, files = 0, [0]
        for process in self._tree():
            with contextlib.suppress(OSError):
                rollup, status = _kilobytes(process.pid, "smaps_rollup"), _kilobytes(process.pid, "status")
                own += rollup["Pss_Anon"] + rollup["Pss_Shmem"]
                files.append(status["RssFile"])
        self.peak = max(self.peak, 1024 * (own + max(files)))

    def ask(self, what: str) -> None:
        """Ask for something, without waiting for it."""
        self.send(signal.SIGCONT)
        try:
            self.process.stdin.write(what + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise SkippedError(self.last_words() or "ended before its rounds were done") from None

    def heard(self) -> dict[str, object]:
        """Wait for the answer."""
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self.stop()

        stuck = threading.Timer(PATIENCE, give_up)
        stuck.start()
        line = self.answers.readline()
        stuck.cancel()
        if not line:
            self.stop()
            raise SkippedError(f"no answer in {PATIENCE:g} s" if late.is_set() else self.last_words())
        return json.loads(line)

    def last_words(self) -> str:
        self.log.seek(0)
        said = [line.strip() for line in self.log.read().splitlines() if line.strip()]
        return said[-1] if said else "ended without a word"

    def turn(self, record: bool) -> float:
        """Have a round done, or several short ones if they are to be recorded, and stand still; return one's seconds."""
        count = max(1, min(self.most, int(TURN / self.last))) if record else 1
        self.ask(f"rounds {count}")
        seconds = float(self.heard()["seconds"])
        self.send(signal.SIGSTOP)
        self.last = seconds
        if record:
            self.seconds.append(seconds)
        return seconds

    def stop(self) -> None:
        """End the process and its children, by their numbers."""
        tree = self._tree()
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()


def _kilobytes(pid: int, name: str) -> dict[str, int]:
    lines = (line.split() for line in Path(f"/proc/{pid}/{name}").read_text().splitlines())
    return {line[0].rstrip(":"): int(line[1]) for line in lines if line[-1] == "kB"}
