"""Federated averaging with server momentum (FedAvgM).

Hsu, Qi and Brown, Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification (2019),
§4.2; and, by the same authors, Federated Visual Classification with Real-World Data Distribution (2020), §5.

v ← βv + Δ and w ← w + γv, with Δ the averaged update: no (1 − β) damping, and buffers of normalisation layers are not
touched. The 2019 paper runs Nesterov's form with γ = 1; the 2020 paper plain momentum with a server rate γ.
"""

from __future__ import annotations

from dataclasses import replace

from fedquilt.algorithm.algorithm import Algorithm, claim
from fedquilt.algorithm.parts.descent import sgd
from fedquilt.algorithm.parts.sampling import DropLast
from fedquilt.base.arguments import ChangingBatchSize, ChangingCount, Fraction, Momentum, NonNegative, Rate, Size
from fedquilt.base.registry import methods
from fedquilt.base.schedule import scheduled
from fedquilt.methods.fed_avg import fed_avg


@methods.register
def fed_avg_m(
    lr: Rate = 0.1,
    fraction: Fraction | None = None,
    epochs: ChangingCount = 1,
    batch: ChangingBatchSize = 10,
    server_momentum: Momentum = 0.9,
    nesterov: bool = False,
    server_lr: Rate = 1.0,
    momentum: Momentum = 0.0,
    weight_decay: NonNegative = 0.0,
    reshuffle: bool = True,
    keep_momentum: bool = False,
    drop_last: DropLast = "auto",
    cohort: Size | None = None,
) -> Algorithm:
    """Federated averaging with momentum at the server (Hsu 2019, Hsu 2020).

    `server_momentum` is β and `server_lr` is γ; `nesterov=True` is what Hsu 2019 ran. With β = 0 and γ = 1 this is
    `fed_avg`, to the bit. The other arguments are those of `fed_avg`; `momentum` is the clients' own.

    >>> fed_avg_m(server_momentum=0.9, nesterov=True).name
    'fed_avg_m'
    """
    base = fed_avg(
        lr, fraction, epochs, batch, momentum, weight_decay, reshuffle, keep_momentum, drop_last, cohort=cohort
    )
    server = sgd(scheduled(server_lr), momentum=server_momentum, nesterov=nesterov)
    return claim(replace(base, name="fed_avg_m"), "fed_avg_m", server=server)
