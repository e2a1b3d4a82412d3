"""The server of a federation: its SuperLink, which is told the keys of the roster."""

from __future__ import annotations

import subprocess
from pathlib import Path

from fedquilt.base.errors import RunError
from fedquilt.experiment.deployment.commands import (
    forget_other_keys,
    keys_to_register,
    register,
    require_flower,
    server_environment,
    superlink,
)
from fedquilt.experiment.deployment.folder import DeploymentFolder
from fedquilt.experiment.deployment.processes import Say, end, require_free, run, start, wait_for_port


def start_server(
    folder: DeploymentFolder, host: str, port: int, say: Say, log: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start the SuperLink, and tell it the keys of all sites of the roster."""
    require_flower()
    spec = folder.load()
    require_free(host, port)
    if forget_other_keys(folder, spec.sites):
        say("Keys were taken from the roster: Flower's database is begun anew, so that they are refused.")
    environment = server_environment(folder, port)
    process = start(superlink(folder, host, port), environment, say, log)
    try:
        wait_for_port("127.0.0.1" if host == "0.0.0.0" else host, port, process)
        for site, key in keys_to_register(folder, spec.sites).items():
            try:
                run(register(key, site), environment, say)
            except RunError as error:
                if "already" not in str(error):
                    raise
    except BaseException:
        end(process)
        raise
    return process
