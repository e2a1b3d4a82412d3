"""Workers on a Ray cluster, from this machine to many.

Each worker is a Ray actor. The data are put into the cluster's object store once, where the workers of a node read them
without a copy; the model is put there once per job. The result has the same bits as with `inline`, on machines of one kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, Self

from fedquilt.base.arguments import NonNegative, Size, Workers
from fedquilt.base.cores import cores
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import engines
from fedquilt.compute.device import Device, Placement, Precision
from fedquilt.compute.pinned import pinned
from fedquilt.engines.cluster.actors import Actors, Needs
from fedquilt.engines.cluster.connection import cluster, require_free
from fedquilt.engines.cluster.nodes import require_alike
from fedquilt.engines.executing import Executing
from fedquilt.engines.execution import Compute, Execution
from fedquilt.engines.grouping import Grouping
from fedquilt.engines.session import ScheduledSession
from fedquilt.round.federation import Federation
from fedquilt.round.session import Engine, Session
from fedquilt.round.site import Site

DataFrom = Literal["store", "spec"]


@engines.register
def ray(
    address: str = "local",
    workers: Workers | None = None,
    gpus: NonNegative | None = None,
    resources: dict[str, float] | None = None,
    block: Size = 1,
    compute: Compute = "eager",
    precision: Precision = "float32",
    device: Device = "cpu",
    data_from: DataFrom = "store",
    sums: bool = True,
    mixed: bool = False,
    insecure: bool = False,
) -> Engine:
    """Workers on a Ray cluster: this machine alone, or as many as the cluster has.

    `address` is "local" (a cluster of this machine that ends with the run), "auto" (the one that RAY_ADDRESS names, or that
    was last started here) or host:port. `workers` is one per CPU of the cluster unless given; each takes a CPU, so many
    `gpus` (1 for a `device` other than the CPU) and so much of your own `resources`. `block`, `compute`, `precision` and
    `device` are those of `vectorised`. `data_from = "spec"` has every worker read the data from its node's own files.
    `sums = false` has every client's update sent by itself. `mixed = true` allows nodes that may differ in the last bits,
    and `insecure = true` a cluster on the network without token authentication. Of all of these, only `block`, `compute`,
    `precision`, `device` and `mixed` nodes can change the result.

    >>> ray(address="127.0.0.1:6379", workers=2).workers
    2
    """
    execution = Execution(block, compute, Placement(device, precision))
    needed = float(device != "cpu") if gpus is None else gpus
    if device != "cpu" and not needed:
        raise SpecError(f'gpus: device = "{device}" needs a GPU for each worker, or a part of one such as 0.5')
    needs = Needs(needed, tuple(sorted((resources or {}).items())))
    _require_possible(needs)
    return RayEngine(execution, address, workers, needs, data_from, sums, mixed, insecure)


def _require_possible(needs: Needs) -> None:
    for name, amount in needs.resources:
        if name in ("CPU", "GPU"):
            raise SpecError(f"resources: every worker takes one CPU, and `gpus` GPUs; {name} has no place here")
        if amount <= 0:
            raise SpecError(f"resources: {name} = {amount:g}: a worker takes more than nothing of it")
    for name, amount in needs.amounts().items():
        if amount > 1 and amount % 1:
            raise SpecError(f"{name}: {amount:g} of it: a worker takes a whole number, or a part of one such as 0.5")


@dataclass(frozen=True)
class RayEngine(Executing):
    """See `ray`; `site_of_spec` makes a run's site from its spec, where that is known."""

    address: str
    workers: int | None
    needs: Needs
    data_from: DataFrom
    sums: bool
    mixed: bool
    insecure: bool
    site_of_spec: Callable[[], Site] | None = None

    def from_spec(self, site: Callable[[], Site]) -> Self:
        """Return the engine, able to have its workers make the site of their run by themselves."""
        return replace(self, site_of_spec=site)

    @contextmanager
    def open(self, federation: Federation) -> Iterator[Session]:
        """Connect to the cluster and start actors; at the end they are kept for the next run, if the connection is."""
        cpus = self.workers or cores()
        with pinned(), cluster(self.address, cpus, self.insecure) as found:
            if not found.idle.get(self.needs):
                require_free(found, self.needs.amounts())
            nodes = require_alike(found, self.mixed)
            server, site = federation.server, self._site(federation)
            self.execution.require(federation.site)
            start = server.start().groups[0].state
            limited = federation.client_seconds is not None
            actors = Actors(found, site, start, self.execution, self.needs, self.workers, limited, self.mixed)
            try:
                yield ScheduledSession.on(
                    actors, server, self.execution, grouping=Grouping(), sums=self.sums, about={"cluster": nodes}
                )
            finally:
                actors.close()

    def _site(self, federation: Federation) -> Site | Callable[[], Site]:
        if self.data_from == "store":
            return federation.site
        if self.site_of_spec is None:
            raise SpecError('data_from: "spec" is for runs of a spec; this run was put together in Python: use "store"')
        return self.site_of_spec
