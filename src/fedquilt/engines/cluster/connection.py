"""The way to a Ray cluster: one that is there, at an address, or one of this machine alone that ends with the run.

Whatever is wrong with it is said at once, before anything is started: Ray itself may wait for minutes, or end the process.
"""

from __future__ import annotations

import importlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedquilt.base.addresses import is_loopback
from fedquilt.base.errors import FedquiltError, MissingExtraError
from fedquilt.base.text import visible

ANSWER, HEALTH, FREE = 5.0, 20.0, 5.0
"""Seconds that an address may take to answer, a cluster to say that it is well, and CPUs to become free."""

SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "RAY_agent_register_timeout_ms": "60000"}
"""Nothing is reported to anybody; workers are no nicer than other processes; a busy machine may take its time."""

LOOPBACK_ALONE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray's variable that, at 0, makes a machine's own address 127.0.0.1, so that everything listens there alone."""

TOKEN = "start it with token authentication (RAY_AUTH_MODE=token), or write insecure = true if its network is your own"


class ClusterError(FedquiltError):
    """A cluster that cannot be used: the message says why, and what to do."""


@dataclass(eq=False)
class Cluster:
    """A cluster that this process is connected to; `idle` are actors that have no run, and wait for the next one."""

    address: str
    ray: Any
    idle: dict[object, list[Any]] = field(default_factory=dict)
    temporary: Path | None = None

    def nodes(self) -> list[dict[str, Any]]:
        """Return what Ray knows of the nodes that are there."""
        return [node for node in self.ray.nodes() if node["Alive"]]

    def free(self) -> list[dict[str, float]]:
        """Return what nobody uses now, node by node."""
        state = importlib.import_module("ray._private.state")
        return list(state.available_resources_per_node().values())

    def room(self, needs: Mapping[str, float]) -> int:
        """Return how many workers with these needs can be started now, each on one node."""
        return sum(int(min(free.get(name, 0.0) // amount for name, amount in needs.items())) for free in self.free())

    def close(self) -> None:
        """End the connection, and the cluster, if it was started for it."""
        for handles in self.idle.values():
            for handle in handles:
                self.ray.kill(handle)
        self.idle.clear()
        self.ray.shutdown()
        if self.temporary is not None:
            shutil.rmtree(self.temporary, ignore_errors=True)


_current: list[Cluster] = []


@contextmanager
def cluster(address: str = "local", cpus: int | None = None, insecure: bool = False) -> Iterator[Cluster]:
    """Connect to a cluster for as long as the context lasts; runs within it use its actors one after the other.

    `address` is "local", for one of this machine alone, with so many `cpus`; "auto", for the one that RAY_ADDRESS names or
    that was last started on this machine; or host:port.
    """
    if _current:
        if address not in (_current[0].address, "auto"):
            raise ClusterError(
                f"this process is connected to the cluster {_current[0].address}; it can have one at a time"
            )
        yield _current[0]
        return
    found = _started(cpus) if address == "local" else _joined(address, insecure)
    _current.append(found)
    try:
        yield found
    finally:
        _current.clear()
        found.close()


def _started(cpus: int | None) -> Cluster:
    """Start a cluster of this machine, whose processes listen on loopback alone."""
    _stay_on_loopback()
    if os.environ.get("RAY_AUTH_MODE") is None:  # else Ray would write a token into the user's home
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    ray = imported_ray()
    folder = Path(tempfile.mkdtemp(prefix="fq-"))
    if len(str(folder)) > 40:  # the names of Ray's sockets are below it, and limited to about 100 characters
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="fq-", dir="/tmp"))
    try:
        _init(ray, address="local", num_cpus=cpus, include_dashboard=False, _temp_dir=str(folder))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    found = Cluster("local", ray, temporary=folder)
    if any(not is_loopback(node["NodeManagerAddress"]) for node in found.nodes()):
        found.close()
        raise ClusterError("a local Ray cluster would listen on the network; this version of Ray cannot be used for it")
    return found


def _joined(address: str, insecure: bool) -> Cluster:
    where = _noted() if address == "auto" else address
    host, _, port = where.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise ClusterError(
            f'address: "{visible(where, 80)}" is neither "auto", "local" nor host:port, such as 127.0.0.1:6379'
        )
    if is_loopback(host):
        _stay_on_loopback()
    elif not insecure and not _has_token():
        raise ClusterError(f"address: {where} is on the network, and no token is set here (RAY_AUTH_TOKEN); {TOKEN}")
    ray = imported_ray()
    try:
        socket.create_connection((host, int(port)), ANSWER).close()
    except OSError as error:
        raise ClusterError(f"address: there is no cluster at {where} ({error}); {_ADVICE}") from None
    _require_health(where, protected=not insecure and not is_loopback(host))
    _require_own_node(ray, where)
    _init(ray, address=where)
    found = Cluster(address, ray)
    exposed = [each["NodeManagerAddress"] for each in found.nodes() if not is_loopback(each["NodeManagerAddress"])]
    if exposed and not insecure and not _has_token():
        found.close()
        raise ClusterError(
            f"address: the cluster at {where} has nodes on the network ({exposed[0]}) and no token; {TOKEN}"
        )
    return found


_ADVICE = 'start one with `ray start --head`, or use address = "local" for this machine alone'


def imported_ray() -> Any:
    """Import Ray, or say how it is installed."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise MissingExtraError('the engine "ray"', "ray") from None


def _stay_on_loopback() -> None:
    os.environ[LOOPBACK_ALONE] = "0"
    constants = sys.modules.get("ray._private.ray_constants")
    if constants is not None:  # it was imported before, and has read the variable
        constants.ENABLE_RAY_CLUSTER = False  # type: ignore[attr-defined]


def _init(ray: Any, **how: Any) -> None:
    if ray.is_initialized():
        raise ClusterError("this process is connected to a Ray cluster already; call ray.shutdown() first")
    try:
        ray.init(log_to_driver=False, logging_level="ERROR", **how)
    except Exception as error:  # Ray raises whatever comes up
        with suppress(Exception):
            ray.shutdown()
        why = visible(" ".join(str(error).split()), 300)
        same = "; every node and this machine need the same versions of Ray and Python" if "ersion" in why else ""
        raise ClusterError(f"cannot connect to the Ray cluster ({how['address']}): {why}{same}") from None


def _noted() -> str:
    """Return the address of the cluster that RAY_ADDRESS names, or else that was last started here."""
    named = os.environ.get("RAY_ADDRESS")
    if named:
        return named
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"  # as Ray looks for it
    try:
        return (Path(folder) / "ray" / "ray_current_cluster").read_text().strip()
    except OSError:
        raise ClusterError(
            f"address: no Ray cluster was started on this machine, or it notes its address elsewhere than in {folder}/ray: "
            f"then write host:port, or set RAY_ADDRESS; {_ADVICE}"
        ) from None


def _has_token() -> bool:
    if os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        return False
    return (
        "RAY_AUTH_TOKEN" in os.environ or Path(os.environ.get("RAY_AUTH_TOKEN_PATH", _TOKEN_FILE)).expanduser().exists()
    )


_TOKEN_FILE = "~/.ray/auth_token"


def _require_health(where: str, protected: bool) -> None:
    """Refuse a cluster that does not answer as one, or, if it has to be `protected`, answers those who have no token."""
    asked = {"as we are": dict(os.environ)}
    if protected:
        without = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH_")}
        asked["without a token"] = without | {"RAY_AUTH_MODE": "disabled"}
    started = {how: _asked_for_health(where, variables) for how, variables in asked.items()}
    healthy = {how: _ends_well(process) for how, process in started.items()}
    if not healthy["as we are"]:
        raise ClusterError(f"address: what listens at {where} does not answer as a Ray cluster, or refuses this token")
    if healthy.get("without a token"):
        raise ClusterError(f"address: the cluster at {where} lets everybody in; {TOKEN}")


def _require_own_node(ray: Any, where: str) -> None:
    """Refuse a cluster that has no node on this machine: Ray itself would look for one for a minute, and not say so."""
    find = getattr(importlib.import_module("ray._private.services"), "get_node_to_connect_for_driver", None)
    if find is None:  # a version of Ray that looks for it in another way
        return
    try:
        find(ray._raylet.GcsClient(address=where), timeout_seconds=int(ANSWER))
    except RuntimeError:
        raise ClusterError(
            f"address: the cluster at {where} has no node on this machine: start fedquilt on one of its machines, or make "
            f"this one a node with `ray start --address={where}`"
        ) from None


def _asked_for_health(where: str, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # Of another version, a cluster is well all the same: which one it has is said by `_init`.
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--skip-version-check", "--address", where]
    return subprocess.Popen(
        command, env=dict(variables), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _ends_well(process: subprocess.Popen[bytes]) -> bool:
    try:
        return process.wait(HEALTH) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        process.kill()
        process.wait()


def require_free(found: Cluster, needs: Mapping[str, float]) -> None:
    """Refuse a cluster on which not even one worker can be started now."""
    until = time.monotonic() + FREE
    while not found.room(needs):
        if time.monotonic() > until:
            free, total = found.free(), found.ray.cluster_resources()
            which = ", ".join(
                f"{amount:g} {name} (at most {max((each.get(name, 0.0) for each in free), default=0.0):g} free on a node, "
                f"{total.get(name, 0.0):g} in all)"
                for name, amount in needs.items()
            )
            raise ClusterError(
                f"the cluster {found.address} has no node on which all is free that a worker needs: {which}; wait until "
                "other work on it has ended, or add nodes"
            )
        time.sleep(0.2)
