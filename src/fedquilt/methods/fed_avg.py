"""Federated averaging: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data (2017).

Algorithm 1: each of m = max(C·K, 1) random clients takes E passes of SGD over its data in batches of B; the server
averages the models with weights n_k / n over those who reported.
"""

from __future__ import annotations

from dataclasses import replace

from fedquilt.algorithm import Algorithm, chain, cross_entropy
from fedquilt.algorithm.parts.descent import sgd
from fedquilt.algorithm.parts.reduction import WeightedMean, by_examples
from fedquilt.algorithm.parts.sampling import DropLast, Epochs
from fedquilt.algorithm.parts.selection import uniform
from fedquilt.base.arguments import ChangingBatchSize, ChangingCount, Fraction, Momentum, NonNegative, Rate, Size
from fedquilt.base.registry import methods
from fedquilt.base.schedule import constant_or_scheduled, scheduled


@methods.register
def fed_avg(
    lr: Rate = 0.1,
    fraction: Fraction | None = None,
    epochs: ChangingCount = 1,
    batch: ChangingBatchSize = 10,
    momentum: Momentum = 0.0,
    weight_decay: NonNegative = 0.0,
    reshuffle: bool = True,
    keep_momentum: bool = False,
    drop_last: DropLast = "auto",
    cohort: Size | None = None,
) -> Algorithm:
    """Average the models that clients train for E epochs (McMahan 2017).

    - `fraction` is C: max(C·K, 1) clients take part in a round, C·K rounded to the nearest whole number, halves up.
      `cohort` is their number instead, as in `cohort=100`. Unless one of the two is given, C is 0.1.
    - `epochs` is E and `batch` is B; `batch = inf` takes a client's whole data as one batch.
    - `lr`, `epochs` and `batch` may change over rounds: `lr={"initial": 0.1, "factor": 0.99}` decays the rate; the paper
      (§3) suggests that E may shrink and B grow as training converges.
    - `momentum` is the clients' own, started anew in every round unless `keep_momentum`. The paper has none.
    - `reshuffle=False` passes over the same batches E times, as Algorithm 1 is printed.
    - `drop_last=True` leaves out the last batch of a pass where it is smaller than the others and not the only one. "auto"
      does so only with a single example, for a model that cannot learn from one alone because of its batch
      normalisation; `False` never does.

    >>> fed_avg(lr=0.05, fraction=0.2, epochs=5, batch=50).name
    'fed_avg'
    """
    local = sgd(scheduled(lr), momentum=momentum, weight_decay=weight_decay)
    return Algorithm(
        name="fed_avg",
        select=uniform(fraction, cohort),
        sample=Epochs(constant_or_scheduled(epochs), constant_or_scheduled(batch), reshuffle, drop_last),
        loss=cross_entropy(),
        local=replace(local, keep=keep_momentum and momentum > 0),
        upload=chain(),
        weigh=by_examples,
        reduce=WeightedMean,
        server=sgd(1.0),
    )
