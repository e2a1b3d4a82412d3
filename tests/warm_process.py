"""Processes that run `fedquilt`, or a script, and start at once: forked from one that has imported everything.

Importing PyTorch takes seconds. What a fork has in common with others is where things lie in memory, and the order of sets:
a test for which these matter starts a process of its own.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


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


def _become(words: list[str], folder: str, environment: dict[str, str], out: str, err: str) -> None:
    """Turn into the process that was ordered, with a session of its own: one signal then reaches all that it starts."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate((os.devnull, out, err)):
        os.dup2(os.open(path, os.O_RDWR | os.O_APPEND), number)
    script = words[0] if words[0].endswith(".py") else None
    sys.argv, sys.path[0] = words if script else ["fedquilt", *words], folder
    if script:
        runpy.run_path(script, run_name="__main__")
    else:
        runpy.run_module("fedquilt", run_name="__main__", alter_sys=True)


class Started:
    """A process, with what tests use of `subprocess.Popen`; its output goes to files."""

    def __init__(self, server: subprocess.Popen[str], words: list[str], folder: Path, files: list[Path]):
        """Start it."""
        self._server, self._files = server, files
        self.returncode: int | None = None
        for path in files:
            path.touch()
        out, err = map(str, files)
        order = {"words": words, "folder": str(folder), "environment": dict(os.environ), "out": out, "err": err}
        self.pid: int = self._ask(order)

    def _ask(self, order: dict[str, Any]) -> Any:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps(order), file=self._server.stdin, flush=True)
        return json.loads(self._server.stdout.readline())

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        if self.returncode is None:
            self.returncode = self._ask({"ended": self.pid})
        return self.returncode

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


class WarmProcess:
    """Starts processes; made once a session."""

    def __init__(self, server: subprocess.Popen[str], home: Path):
        """Keep what they write in a folder."""
        self._server, self._home, self._count = server, home, 0

    def start(self, *words: str, folder: Path) -> Started:
        """Start `fedquilt` with these words, or a script that the first of them names, in a folder."""
        self._count += 1
        files = [self._home / f"{self._count}.{name}" for name in ("out", "err")]
        return Started(self._server, list(words), folder, files)


@contextmanager
def opened(home: Path) -> Iterator[WarmProcess]:
    """Start the process that others are forked from, and end it."""
    command = [sys.executable, __file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        yield WarmProcess(server, home)


if __name__ == "__main__":
    serve()
