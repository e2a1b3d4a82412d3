"""Submits a federation's app to its SuperLink, and follows what becomes of it in the run folder."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedquilt.base.errors import RunError
from fedquilt.experiment.deployment.commands import require_flower, server_environment, submit
from fedquilt.experiment.deployment.folder import DeploymentFolder
from fedquilt.experiment.deployment.processes import Say, run
from fedquilt.experiment.deployment.ticket import Ticket
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.follow import follow

STARTING = 90.0
"""Seconds in which a ServerApp must have begun."""

PAUSE = 0.3


def submitted(
    folder: DeploymentFolder,
    port: int,
    say: Say,
    name: str = "federation",
    rounds: int | None = None,
    check: bool = False,
) -> Ticket:
    """Submit the app, and return where it says how it goes."""
    require_flower()
    ticket = Ticket(folder, secrets.token_hex(8))
    folder.run(name)
    config: dict[str, str | int | bool] = {"run": name, "rounds": rounds or 0, "check": check, "ticket": ticket.number}
    run(submit(folder, config), server_environment(folder, port), say)
    return ticket


def progress(ticket: Ticket, out: Path) -> Iterator[dict[str, Any]]:
    """Yield what a submission says, and the records of its rounds, until it has ended; one that was killed is an error.

    Ctrl-C ends the ServerApp too: Flower would leave it running, and the run folder locked.
    """
    try:
        yield from _progress(ticket, out)
    except KeyboardInterrupt:
        said = ticket.read()
        if said is not None and said["state"] in ("waiting", "running") and _alive(said["process"]):
            os.kill(said["process"], signal.SIGTERM)
        raise


def _progress(ticket: Ticket, out: Path) -> Iterator[dict[str, Any]]:
    begun, told, last = time.monotonic(), None, _rounds_so_far(out)
    while True:
        said = ticket.read()
        if said is None:
            if time.monotonic() - begun > STARTING:
                raise RunError(
                    "the SuperLink has taken the app, but its ServerApp has not begun; its log says why "
                    "(state/server.log, or the terminal of `fedquilt deploy server`)"
                )
        elif said["state"] == "running" and RunFolder(out).running():
            for record in follow(out, last):
                last = record["round"]
                yield {"state": "round", "record": record}
        elif said != told:
            told = said
            yield said
            if said["state"] in ("ended", "interrupted", "failed", "checked"):
                return
        if said is not None and not _alive(said["process"]) and ticket.read() == said:
            raise RunError(
                "the ServerApp ended without saying why; rounds that were saved are not lost: run the same command again, "
                "with the SuperLink running"
            )
        time.sleep(PAUSE)


def _rounds_so_far(out: Path) -> int:
    folder = RunFolder(out)
    return folder.read().round if folder.spec.exists() else 0


def _alive(process: int) -> bool:
    """Say whether a process runs; one that was killed, and that nobody has asked for its code, does not."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    about = Path(f"/proc/{process}/stat")
    try:
        return about.read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:  # it has ended meanwhile, or the system has no such files
        return not about.parent.parent.exists()
