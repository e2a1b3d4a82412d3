"""SGD on the pooled data: the baseline that relative accuracy needs (Hsu 2020, §6; McMahan 2017, Table 3).

All clients' data are put together as if one client held them. A round is one pass over them, or `steps` batches: with
`steps=1` a round is one minibatch update, as McMahan 2017 counts its SGD baseline. Momentum lives on from round to round.
"""

from __future__ import annotations

from dataclasses import replace

from fedquilt.algorithm.algorithm import Algorithm, Course
from fedquilt.algorithm.parts.sampling import DropLast, Steps
from fedquilt.base.arguments import BatchSize, Momentum, NonNegative, Rate, Size
from fedquilt.base.registry import methods
from fedquilt.methods.fed_avg import fed_avg


@methods.register
def centralised(
    lr: Rate = 0.1,
    batch: BatchSize = 100,
    steps: Size | None = None,
    momentum: Momentum = 0.0,
    weight_decay: NonNegative = 0.0,
    drop_last: DropLast = "auto",
) -> Algorithm:
    """SGD on the pooled data of all clients, the baseline for relative accuracy (McMahan 2017, Hsu 2020).

    >>> centralised(lr=0.1, batch=64).course.pooled
    True
    """
    base = fed_avg(lr, 1.0, 1, batch, momentum, weight_decay, keep_momentum=True, drop_last=drop_last)
    sample = base.sample if steps is None else Steps(steps, batch)
    return replace(base, name="centralised", sample=sample, course=Course(pooled=True))
