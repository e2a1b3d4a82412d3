"""A site's SuperNode, started again when it ends.

Flower refuses a SuperNode that comes back before the one that was killed counts as gone, which takes it about a minute:
hence the pause.
"""

from __future__ import annotations

import subprocess
import time

from fedquilt.experiment.deployment.commands import free_port, require_flower, site_environment, supernode
from fedquilt.experiment.deployment.folder import DeploymentFolder
from fedquilt.experiment.deployment.processes import Say, end, start

PAUSE = 65.0
"""Seconds before a SuperNode is started again."""


def supervise(
    folder: DeploymentFolder,
    site: str,
    server: str,
    say: Say,
    port: int | None = None,
    share_class_counts: bool = False,
    restarts: int | None = None,
    pause: float = PAUSE,
) -> int:
    """Keep a site's SuperNode running, until Ctrl-C; return the code that it ended with, once it is not started again."""
    require_flower()
    folder.load()
    environment = site_environment(folder, site, share_class_counts)
    while True:
        command = supernode(folder, site, server, port or free_port())
        process: subprocess.Popen[bytes] = start(command, environment, say)
        try:
            code = process.wait()
        finally:
            end(process)
        if restarts == 0:
            return code
        restarts = None if restarts is None else restarts - 1
        say(f"The SuperNode ended with the code {code}; it is started again in {pause:g} s (Ctrl-C ends that).")
        time.sleep(pause)
