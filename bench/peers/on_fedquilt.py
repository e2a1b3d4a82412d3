"""fedquilt, with the engine that bench/workloads.py gives the workload."""

from __future__ import annotations

import sys
from pathlib import Path

from turns import CHECKED, Turns

PLANNED = 10**6
"""Rounds that the run is planned for: `compute = "auto"` goes by that, as in bench/speed.py."""


def same_work(turns: Turns):
    """Return bench/workloads.py's workload, having seen that it is the same as ours."""
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    from workloads import WORKLOADS  # noqa: PLC0415

    work, given = turns.work, WORKLOADS[sys.argv[1]]
    shapes = [[tuple(p.shape) for p in model.parameters()] for model in (work.torch_model(), given.model())]
    assert shapes[0] == shapes[1], shapes
    assert (list(work.sizes), work.lr, work.momentum) == (given.sizes(), given.lr, given.momentum)
    return given


def main() -> None:
    turns = Turns()
    work, engine = turns.work, same_work(turns).engine()

    # user code begins
    import numpy as np  # noqa: PLC0415

    import fedquilt  # noqa: PLC0415

    x, y = work.examples
    data = fedquilt.arrays(x, y, x[:1000], y[:1000])
    held = fedquilt.Partition.by_sizes(np.arange(len(y)), np.asarray(work.sizes))
    method = fedquilt.fed_avg(
        lr=work.lr, fraction=work.cohort / work.clients, epochs=work.epochs, batch=work.batch, momentum=work.momentum
    )
    model = work.torch_model()

    class Watcher:
        def begin(self, history, last):
            self.round(None)

        def heard(self, clients, total):
            pass

        def round(self, record):
            if not turns.boundary(loss):
                raise SystemExit

    def loss() -> float:
        # A run is a function of its seed: a second one of five rounds ends where the first was after five.
        again = fedquilt.train(model, data, held, method, rounds=CHECKED, engine=fedquilt.inline(), eval_every=CHECKED)
        return work.torch_loss(again.model)

    fedquilt.train(model, data, held, method, rounds=PLANNED, engine=engine, eval_every=PLANNED, watcher=Watcher())
    # user code ends


if __name__ == "__main__":
    main()
