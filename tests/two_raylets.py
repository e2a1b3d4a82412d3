"""A real Ray cluster of two raylets, on loopback: to be used in a network namespace, where nothing else exists."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ADDRESS = "127.0.0.1:6399"
STORE = 200_000_000
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
SETTINGS |= {"RAY_AUTH_MODE": "disabled", "RAY_agent_register_timeout_ms": "60000"}
SETTINGS |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1"}  # a connection to loopback sets it to 0, for its own process


@dataclass(eq=False)
class TwoRaylets:
    """The head, which has CPUs too, and another node; each is a process that ends with what it started."""

    folder: str
    cpus: int
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        """Start a raylet: the head first, then as many others as are asked for."""
        place = ["--address", ADDRESS] if self.started else ["--head", "--port", ADDRESS.partition(":")[2]]
        place += [] if self.started else ["--include-dashboard=false", "--temp-dir", self.folder]
        command = [
            sys.executable,
            "-m",
            "ray.scripts.scripts",
            "start",
            "--block",
            "--node-ip-address=127.0.0.1",
            *place,
        ]
        command += [f"--num-cpus={self.cpus}", "--disable-usage-stats", f"--object-store-memory={STORE}"]
        with (Path(self.folder) / f"start-{len(self.started)}.log").open("wb") as log:
            self.started.append(subprocess.Popen(command, env=os.environ | SETTINGS, stdout=log, stderr=log))
        wanted, until = len(self.raylets()) + 1, time.monotonic() + 120
        while len(self.raylets()) < wanted:
            assert time.monotonic() < until, self.said()
            assert self.started[-1].poll() is None, self.said()
            time.sleep(0.2)

    def said(self) -> str:
        """What the processes have written."""
        return "\n".join(file.read_text() for file in sorted(Path(self.folder).glob("start-*.log")))

    def raylets(self) -> list[int]:
        """The raylets that run, the oldest first; in this namespace there are no others."""
        return processes("raylet")

    def kill(self, name: str, number: int = -1) -> None:
        """Kill one of the processes of a name: as a crash of its machine would, without a word."""
        os.kill(processes(name)[number], signal.SIGKILL)

    def close(self) -> None:
        """End it all."""
        for process in reversed(self.started):
            process.terminate()
        for process in self.started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def processes(name: str) -> list[int]:
    """The ids of the processes that were started under a name, the oldest first."""
    found = subprocess.run(["pgrep", "-f", name], check=False, capture_output=True, text=True).stdout.split()
    return [
        int(each)
        for each in found
        if _command(int(each)).startswith(name) or f"/{name}" in _command(int(each)).split("\0")[0]
    ]


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""


@contextmanager
def two_raylets(cpus: int = 2) -> Iterator[TwoRaylets]:
    """Start a cluster of two nodes with so many CPUs each."""
    os.environ |= SETTINGS
    with tempfile.TemporaryDirectory(prefix="fq-", ignore_cleanup_errors=True) as folder:
        nodes = TwoRaylets(folder, cpus)
        try:
            nodes.start()
            time.sleep(3)  # until its store of settings answers
            nodes.start()
            yield nodes
        finally:
            nodes.close()
