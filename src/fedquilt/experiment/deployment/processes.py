"""Starts Flower's commands, says which, and ends them by their own process ids."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fedquilt.base.errors import RunError

Say = Callable[[str], None]

ENDING = 15.0
"""Seconds that a command has to end by itself once it is asked to."""


def start(
    command: Sequence[str], environment: Mapping[str, str], say: Say, log: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start a command, in a group of its own, so that it can be ended with all that it starts."""
    say(f"$ {shlex.join(command)}")
    if log is None:
        return subprocess.Popen(command, env=dict(environment), start_new_session=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        return subprocess.Popen(
            command, env=dict(environment), start_new_session=True, stdout=file, stderr=subprocess.STDOUT
        )


def end(process: subprocess.Popen[bytes]) -> None:
    """End a command and all that it has started."""
    for sign, seconds in ((signal.SIGTERM, ENDING), (signal.SIGKILL, ENDING)):
        try:
            os.killpg(process.pid, sign)  # its group has its number
        except ProcessLookupError:
            break
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            continue
    process.poll()


def run(command: Sequence[str], environment: Mapping[str, str], say: Say) -> str:
    """Run a command to its end, and return what it wrote; one that fails is an error, with its words."""
    say(f"$ {shlex.join(command)}")
    done = subprocess.run(
        command, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise RunError(f"{' '.join(command[:3])} failed: {' '.join(done.stdout.split())[-1500:]}")
    return done.stdout


def require_free(host: str, port: int) -> None:
    """Refuse a port that something listens at: it would be taken for the SuperLink that is to be started."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, port))
        except OSError as error:
            raise RunError(
                f"cannot listen at {host}:{port}: {error.strerror}; is another server running? --port takes another port"
            ) from None


def wait_for_port(host: str, port: int, process: subprocess.Popen[bytes], seconds: float = 90.0) -> None:
    """Wait until something listens, or the process that should has ended."""
    end_at = time.monotonic() + seconds
    while time.monotonic() < end_at:
        if process.poll() is not None:
            raise RunError(f"the SuperLink ended with the code {process.returncode} before it listened")
        try:
            socket.create_connection((host, port), timeout=1.0).close()
            return
        except OSError:
            time.sleep(0.2)
    raise RunError(f"the SuperLink does not listen at {host}:{port} after {seconds:g} s")
