"""A whole federation on one machine: the SuperLink, every site, keys and TLS included; for trying out, and for tests."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fedquilt.experiment.deployment.commands import free_port, site_environment, supernode
from fedquilt.experiment.deployment.folder import DeploymentFolder
from fedquilt.experiment.deployment.processes import Say, end, start
from fedquilt.experiment.deployment.server import start_server


@dataclass(frozen=True, eq=False)
class Local:
    """Processes of a federation on this machine; `port` is the SuperLink's."""

    port: int
    server: subprocess.Popen[bytes]
    sites: dict[str, subprocess.Popen[bytes]]


@contextmanager
def local(folder: DeploymentFolder, say: Say, share_class_counts: bool = False) -> Iterator[Local]:
    """Start the server and all sites of a folder, on loopback; leaving the context ends them by their process ids."""
    spec, port, logs = folder.load(), free_port(), folder.state / "logs"
    started: list[subprocess.Popen[bytes]] = []
    try:
        server = start_server(folder, "127.0.0.1", port, say, logs / "server.log")
        started.append(server)
        sites = {}
        for site in spec.sites:
            command = supernode(folder, site.name, f"127.0.0.1:{port}", free_port())
            environment = site_environment(folder, site.name, share_class_counts)
            sites[site.name] = start(command, environment, say, logs / f"{site.name}.log")
            started.append(sites[site.name])
        yield Local(port, server, sites)
    finally:
        for process in reversed(started):
            end(process)
