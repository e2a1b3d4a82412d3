"""Processes that run `fedquilt`, a script, or a sweep's trials, and start at once: forked from one that has imported all.

Importing PyTorch takes seconds. What a fork has in common with others is where things lie in memory, and the order of sets:
a test for which these matter starts a process of its own.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from functools import cached_property
from pathlib import Path
from typing import Any

TRIALS = "trials"
"""Ordered in place of words: the process that a sweep's trials come from."""


def serve() -> None:
    """Take orders, a line each, and answer each with a line: start a process, or say how one has ended."""
    import fedquilt.cli.app
    import fedquilt.experiment.sweeping.trial_process
    import fedquilt.experiment.training  # noqa: F401

    for line in sys.stdin:
        order = json.loads(line)
        if "ended" in order:
            pid, status = os.waitpid(order["ended"], os.WNOHANG)
            answer = None if pid == 0 else os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                break
        print(json.dumps(answer), flush=True)
    else:
        return
    _become(**order)


def _become(words: list[str], folder: str, environment: dict[str, str], path: list[str], files: list[str]) -> None:
    """Turn into the process that was ordered, with a session of its own: one signal then reaches all that it starts."""
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may have been told to ignore it, as by nohup
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, (file, mode) in enumerate(zip(files, (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY), strict=True)):
        os.dup2(os.open(file, mode), number)
    sys.path[:] = path
    if words == [TRIALS]:
        from fedquilt.experiment.sweeping.launcher import main

        main()
    elif words[0].endswith(".py"):
        sys.argv, sys.path[0] = words, folder
        runpy.run_path(words[0], run_name="__main__")
    else:
        sys.argv, sys.path[0] = ["fedquilt", *words], folder
        runpy.run_module("fedquilt", run_name="__main__", alter_sys=True)


class Started:
    """A process, with what tests use of `subprocess.Popen`; what it writes is in files."""

    def __init__(self, warm: WarmProcess, pid: int, files: list[Path]):
        """Know a process that was started."""
        self._warm, self.pid, self._files = warm, pid, files
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        if self.returncode is None:
            self.returncode = self._warm.ask({"ended": self.pid})
        return self.returncode

    def kill(self) -> None:
        """Kill it."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float = 120) -> int:
        """Wait for its end."""
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("fedquilt", timeout)
            time.sleep(0.01)
        return code

    def communicate(self, timeout: float = 120) -> tuple[str, str]:
        """Wait for its end, and return what it has written."""
        self.wait(timeout)
        out, err = (path.read_text() for path in self._files)
        return out, err


class Trials(Started):
    """The process that a sweep's trials come from: orders are written to it, and what it tells is read, through pipes."""

    def __init__(self, warm: WarmProcess, pid: int, files: list[Path]):
        """Open the pipes, in the order in which it does."""
        super().__init__(warm, pid, files)
        self.stdin, self.stdout = files[0].open("wb", buffering=0), files[1].open("rb", buffering=0)


class WarmProcess:
    """Starts processes; made once a session. What they write is in the folder `home`."""

    def __init__(self, home: Path):
        """Start nothing yet."""
        self._home, self._count = home, 0

    @cached_property
    def _server(self) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, order: dict[str, Any]) -> Any:
        """Give an order, and return the answer."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps(order), file=self._server.stdin, flush=True)
        return json.loads(self._server.stdout.readline())

    def _order(self, words: list[str], folder: Path, files: list[Path]) -> int:
        paths = {"folder": str(folder.absolute()), "files": [str(file) for file in files], "path": sys.path}
        pid: int = self.ask({"words": words, "environment": dict(os.environ)} | paths)
        return pid

    def _new(self, *names: str) -> list[Path]:
        self._count += 1
        return [self._home / f"{self._count}.{name}" for name in names]

    def start(self, *words: str, folder: Path) -> Started:
        """Start `fedquilt` with these words, or a script that the first of them names, in a folder."""
        files = self._new("out", "err")
        for file in files:
            file.touch()
        return Started(self, self._order(list(words), folder, [Path(os.devnull), *files]), files)

    def start_trials(self) -> Trials:
        """Start what a sweep's trials come from, in this folder."""
        pipes = self._new("in", "out")
        for pipe in pipes:
            os.mkfifo(pipe)
        return Trials(self, self._order([TRIALS], Path(), [*pipes, Path(os.devnull)]), pipes)

    def close(self) -> None:
        """End the process that others were forked from."""
        if "_server" in vars(self):
            self._server.communicate()


if __name__ == "__main__":
    serve()
