"""One single-threaded worker process per core: it trains one client at a time (`processes`) or a block (`vectorised`).

Parameters and results lie in shared memory, data are inherited, and nothing is pickled per client. Clients or blocks are
handed out one at a time, the largest first, and evaluations in chunks. A worker that dies is replaced and its task done
again, with the same bits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fedquilt.base.arguments import Size, Workers
from fedquilt.base.cores import cores
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import engines
from fedquilt.compute.device import Device, Placement, Precision
from fedquilt.compute.pinned import pinned
from fedquilt.engines.executing import Executing
from fedquilt.engines.execution import Compute, Execution
from fedquilt.engines.pipes import Pipes, Start
from fedquilt.engines.session import ScheduledSession
from fedquilt.round.federation import Federation
from fedquilt.round.session import Engine, Session
from fedquilt.round.warm_up import warm_up


@engines.register
def processes(
    workers: Workers | None = None,
    start: Start | None = None,
    compute: Compute = "eager",
    precision: Precision = "float32",
    device: Device = "cpu",
) -> Engine:
    """One single-threaded worker process per core, sharing memory.

    `workers` is the number of cores unless given, or 1 on a `device` other than the CPU. `start` is how they are started:
    "fork" on Linux (ready at once), "spawn" elsewhere and for other devices. Neither changes the result.
    `compute = "compiled"` compiles the local step, several steps per call; `precision = "bf16"` runs the model under
    autocast.

    >>> processes(workers=2, start="fork").workers
    2
    """
    return process_engine(workers, start, Execution(1, compute, Placement(device, precision)))


@engines.register
def vectorised(
    block: Size = 16,
    workers: Workers | None = None,
    start: Start | None = None,
    compute: Compute = "eager",
    precision: Precision = "float32",
    device: Device = "cpu",
) -> Engine:
    """Many clients as one batched program, in every worker process; for small models.

    `block` clients are trained at once, those of similar sizes together; shorter ones are padded. It decides the last bits
    of the result, `workers` and `start` do not. The other arguments are those of `processes`.

    >>> vectorised(block=8, workers=1).execution.block
    8
    """
    return process_engine(workers, start, Execution(block, compute, Placement(device, precision)))


def process_engine(workers: int | None, start: Start | None, execution: Execution) -> ProcessEngine:
    """Return an engine with a worker per core, unless their number is given.

    >>> process_engine(3, "fork", Execution()).workers
    3
    """
    on_cpu = execution.placement.device == "cpu"
    if start == "fork" and not on_cpu:
        raise SpecError(f'start: a forked process cannot use device = "{execution.placement.device}"; use "spawn"')
    return ProcessEngine(
        execution, workers or (cores() if on_cpu else 1), start or usual_start(execution.placement.device)
    )


def usual_start(device: str) -> Start:
    """Return how workers are started unless that is given.

    >>> usual_start("cuda")
    'spawn'
    """
    return "fork" if device == "cpu" and sys.platform == "linux" else "spawn"


@dataclass(frozen=True)
class ProcessEngine(Executing):
    """See `processes` and `vectorised`."""

    workers: int
    start: Start

    @property
    def table(self) -> dict[str, Any]:
        """Return what a spec's `[engine]` says of it."""
        name = "processes" if self.execution.block == 1 else "vectorised"
        start = {} if self.start == usual_start(self.execution.placement.device) else {"start": self.start}
        return {"name": name, "workers": self.workers} | start | self._arguments()

    @contextmanager
    def open(self, federation: Federation) -> Iterator[Session]:
        """Start the workers, and end them at the end."""
        # torch's settings are pinned first: a pool of threads does not survive a fork.
        with pinned():
            execution, on_cpu = self.execution, self.execution.placement.device == "cpu"
            server, site = federation.server, federation.site
            if on_cpu:
                site = execution.placed(site)
            else:  # workers place the model themselves: a device's memory is a process's own
                execution.require(site)
            program, state = execution.program(site), server.start().groups[0].state
            if program is not None and on_cpu:
                # Compiled before the workers are forked, so that it is done once; spawned ones do it again, from the cache.
                warm_up(program, site, state)
            pipes = Pipes(site, program, execution, self.workers, self.start, state)
            try:
                # A block comes back as one sum: adding its rows up here would keep the workers waiting.
                yield ScheduledSession.on(pipes, server, execution, sums=execution.block > 1)
            finally:
                pipes.close()
