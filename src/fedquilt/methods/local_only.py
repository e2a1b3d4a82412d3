"""Every client on its own: the baseline that federated learning has to beat.

Clients train on their own data, a pass or several per round, and nothing is averaged or sent. Reported is the mean over
clients of their models' accuracy on the whole test set and, as `per_client_accuracy`, in the per-client test.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedquilt.algorithm.algorithm import Algorithm, claim
from fedquilt.algorithm.parts.sampling import DropLast
from fedquilt.algorithm.state import Group, RunState
from fedquilt.base.arguments import BelowOne, ChangingBatchSize, ChangingCount, Momentum, NonNegative, Rate
from fedquilt.base.registry import methods
from fedquilt.methods.fed_avg import fed_avg
from fedquilt.round.round_function import Ended, Work, every_group, regrouped
from fedquilt.round.session import Pending


@methods.register
def local_only(
    lr: Rate = 0.1,
    epochs: ChangingCount = 1,
    batch: ChangingBatchSize = 10,
    momentum: Momentum = 0.0,
    weight_decay: NonNegative = 0.0,
    holdout: BelowOne = 0.2,
    drop_last: DropLast = "auto",
) -> Algorithm:
    """Train every client on its own data alone, the baseline that averaging has to beat (McMahan 2017).

    A share `holdout` of a client's data is kept out of training to test it on (with 0, it is tested on what it trains on).
    Every client's model is evaluated on the whole test set: with many clients, set `run.eval_every`.

    >>> local_only(lr=0.05).course.sends
    False
    """
    base = fed_avg(lr, 1.0, epochs, batch, momentum, weight_decay, keep_momentum=True, drop_last=drop_last)
    return claim(
        replace(base, name="local_only"),
        "local_only",
        course={"round": each_alone, "sends": False},
        per_client={"share": holdout},
    )


def each_alone(work: Work, run: RunState) -> Pending[Ended]:
    """Begin a round in which every client is a separate group."""
    if run.round == 0 and len(run.groups) == 1:
        state, algorithm = run.groups[0].state, work.server.algorithm
        groups = [
            Group(regrouped(algorithm, state, [client], run.store), np.asarray([client], dtype=np.int64))
            for client in range(len(work.server.population))
        ]
        run = RunState(tuple(groups), run.store)
    return every_group(work, run)
