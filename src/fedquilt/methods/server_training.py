"""Server-side training: Ozdayi, Kantarcioglu and Iyer, Improving Accuracy of Federated Learning in Non-IID Settings (2020).

§3.1: the server has a small, balanced data set and fine-tunes the model on it after each aggregation. In the paper's
Table 2 it is given 5% of the training data, and trains for one epoch per round.
"""

from __future__ import annotations

from dataclasses import replace

from fedquilt.algorithm.algorithm import Algorithm, claim
from fedquilt.algorithm.parts.sampling import DropLast
from fedquilt.base.arguments import BelowOne, ChangingBatchSize, ChangingCount, Momentum, NonNegative, Rate
from fedquilt.base.registry import wrappers
from fedquilt.methods.fed_avg import fed_avg


@wrappers.register
def server_training(
    algorithm: Algorithm,
    share: BelowOne = 0.05,
    lr: Rate = 0.1,
    epochs: ChangingCount = 1,
    batch: ChangingBatchSize = 10,
    momentum: Momentum = 0.0,
    weight_decay: NonNegative = 0.0,
    drop_last: DropLast = "auto",
) -> Algorithm:
    """Fine-tune the model at the server after each round, on the server's data (Ozdayi 2020).

    - `share` of every class of the training data is taken away from the clients and kept by the server; 0 leaves the
      method as it is.
    - `lr`, `epochs`, `batch`, `momentum` and `weight_decay` are those of the server's training. The paper does not give
      them; it most likely ran the clients' own: a rate of 0.1, batches of 256 and a weight decay of 5·10⁻⁴.

    Nothing more is sent: the cost is the server's.

    >>> from fedquilt import fed_avg
    >>> server_training(fed_avg(), share=0.1).after.share
    0.1
    """
    if not share:
        return algorithm
    inner = fed_avg(
        lr=lr, epochs=epochs, batch=batch, momentum=momentum, weight_decay=weight_decay, drop_last=drop_last
    )
    inner = replace(inner, loss=replace(algorithm.loss, normalise=True))
    return claim(algorithm, "server_training", after={"algorithm": inner, "share": share})
