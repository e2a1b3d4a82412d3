"""Trials on a Ray cluster: actors, each with a process on its node that trials are forked from, used one after the other.

What a trial writes is in its run folder, as on one machine: the nodes must share the folder of the sweep (a network file
system), which is tried before the first trial.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedquilt.base import interrupts
from fedquilt.base.errors import RunError
from fedquilt.engines.cluster.connection import Cluster
from fedquilt.engines.cluster.nodes import on_every_node
from fedquilt.experiment.sweeping.executors import Ended, Order, TrialEvent
from fedquilt.experiment.sweeping.local import LOOK, LocalExecutor


class TrialHost:
    """An actor that runs trials on its node, one at a time, in processes of their own."""

    def __init__(self) -> None:
        """Start the process that trials are forked from."""
        self._here = LocalExecutor()

    def start(self, order: Order) -> None:
        """Start a trial."""
        self._here.start(order)

    def events(self) -> Sequence[TrialEvent]:
        """Wait a little for the trial to tell something."""
        return self._here.wait(LOOK)

    def stop(self, number: int, at_once: bool) -> None:
        """Ask the trial to end."""
        self._here.stop(number, at_once)


@dataclass(eq=False)
class _Busy:
    """A host with a trial, and what it is asked for: `events`, again and again."""

    host: Any
    asked: Any


class ClusterExecutor:
    """An `Executor`: the nodes of a Ray cluster. A host that has ended a trial is given the next one."""

    def __init__(self, cluster: Cluster, folder: Path, cpus: int = 1) -> None:
        """Use a cluster whose nodes all see the sweep's folder; every trial takes so many CPUs of one node."""
        self._ray = cluster.ray
        _require_shared(cluster, folder)
        options = {"num_cpus": cpus, "max_restarts": 0, "max_task_retries": 0}
        self._class = self._ray.remote(TrialHost).options(**options)
        self.hosts = 0  # that were started
        self._free: list[Any] = []
        self._busy: dict[int, _Busy] = {}

    def start(self, order: Order) -> None:
        """Order a trial from a host that has none, or from a new one."""
        home = None if order.home is None else str(Path(order.home).absolute())
        if not self._free:
            self._free.append(self._class.remote())
            self.hosts += 1
        host = self._free.pop()
        host.start.remote(replace(order, folder=str(Path(order.folder).absolute()), home=home))
        self._busy[order.number] = _Busy(host, host.events.remote())

    def stop(self, number: int, at_once: bool = False) -> None:
        """Pass it on."""
        if number in self._busy:
            self._busy[number].host.stop.remote(number, at_once)

    def wait(self, seconds: float) -> Sequence[TrialEvent]:
        """Wait for hosts. A trial whose host has died goes on from its newest checkpoint, elsewhere."""
        with interrupts.allowed():
            asked = {busy.asked: number for number, busy in self._busy.items()}
            ready, _ = self._ray.wait(list(asked), timeout=seconds) if asked else ([], None)
        events: list[TrialEvent] = []
        for each in ready:
            number, busy = asked[each], self._busy[asked[each]]
            try:
                newest = list(self._ray.get(each))
            except self._ray.exceptions.RayError:
                del self._busy[number]
                events.append(Ended(number, "interrupted"))
                continue
            events += newest
            if any(isinstance(event, Ended) for event in newest):
                self._free.append(self._busy.pop(number).host)
            else:
                busy.asked = busy.host.events.remote()
        return events

    def close(self) -> None:
        """End the hosts: their trials notice it, save what is done and end."""
        for host in [*self._free, *(busy.host for busy in self._busy.values())]:
            self._ray.kill(host)
        self._free.clear()
        self._busy.clear()


def _sees(file: str, token: str) -> bool:
    try:
        return Path(file).read_text() == token
    except OSError:
        return False


def _require_shared(cluster: Cluster, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(8)
    file = folder.absolute() / f".shared-{token}"
    file.write_text(token)
    try:
        seen = on_every_node(cluster, _sees, str(file), token)
    finally:
        file.unlink()
    blind = [address for address, sees in seen.items() if sees is not True]
    if blind:
        raise RunError(
            f"{folder}: is not seen by the node {blind[0]}: a sweep on a cluster needs a folder that all nodes share; "
            "choose one with --out"
        )
