"""fedquilt, with the engine that bench/workloads.py gives the workload."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

# user code begins
import numpy as np
from torch_models import vector
from turns import play

import fedquilt

# user code ends
from fedquilt.core.algorithm import Batches

PLANNED = 10**6
"""Rounds that the run is planned for: `compute = "auto"` goes by that, as in bench/speed.py."""


@dataclass(frozen=True)
class InOrder:
    """A client's examples as they come."""

    epochs: int
    batch: int

    def __call__(self, examples: int, rng: np.random.Generator, round_: int = 1) -> Batches:
        order = np.tile(np.arange(examples, dtype=np.int64), self.epochs)
        return Batches(order, np.arange(0, len(order) + 1, self.batch, dtype=np.int64))


def engine(work):
    """Return the engine of bench/workloads.py, having seen that the work there is the same as ours."""
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    from workloads import WORKLOADS  # noqa: PLC0415

    given = WORKLOADS[work.name]
    method, size = given.method(), 7 * work.batch
    shapes = [[tuple(p.shape) for p in model.parameters()] for model in (work.torch_model(), given.model())]
    assert shapes[0] == shapes[1], shapes
    assert (list(work.held or work.sizes), work.lr, work.momentum) == (given.sizes(), given.lr, given.momentum)
    cuts = method.sample(size, np.random.default_rng(0), 1).cuts
    assert (cuts[1], len(cuts) - 1) == (work.batch, 7 * work.epochs)
    if not work.held:
        assert len(method.select(np.asarray(work.sizes), np.random.default_rng(0))) == work.cohort
    return given.engine()


# user code begins
def simulate(work, turns):
    x, y = work.examples
    data = fedquilt.arrays(x, y, x[:1000], y[:1000])
    held = fedquilt.Partition.by_sizes(np.arange(len(y)), np.asarray(work.sizes))
    method = fedquilt.fed_avg(
        lr=work.lr, fraction=work.cohort / work.clients, epochs=work.epochs, batch=work.batch, momentum=work.momentum
    )
    if not work.shuffled:
        method = replace(method, sample=InOrder(work.epochs, work.batch))

    class Watcher:
        def begin(self, history, last):
            turns.boundary()

        def heard(self, clients, total):
            pass

        def round(self, record):
            if not turns.boundary():
                raise KeyboardInterrupt

    trained = fedquilt.train(
        work.torch_model(), data, held, method, PLANNED, engine=engine(work), eval_every=PLANNED, watcher=Watcher()
    )
    return vector(trained.model)


play(simulate)
# user code ends
