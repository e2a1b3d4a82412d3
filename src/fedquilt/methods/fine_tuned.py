"""Testing on clients' own data: the model as it is, or after every client has fine-tuned it.

Fine-tune-then-evaluate: Wang et al., Federated Evaluation of On-device Personalization (2019).
"""

from __future__ import annotations

from dataclasses import replace

from fedquilt.algorithm.algorithm import Algorithm, Personalise, claim
from fedquilt.algorithm.parts.sampling import DropLast
from fedquilt.base.arguments import BatchSize, BelowOne, Passes, Rate
from fedquilt.base.registry import wrappers
from fedquilt.methods.fed_avg import fed_avg


@wrappers.register
def own_test(algorithm: Algorithm, holdout: BelowOne = 0.2) -> Algorithm:
    """Test the model on every client's own data too (McMahan 2017).

    A share `holdout` of every client's data is kept out of training for it; with 0, the model is tested on what they train
    on. Reported as `per_client_accuracy`, over all of these examples, and `per_client_accuracy_worst_tenth`, the mean
    over the worst tenth of the clients. Where the partition gives each client test examples, these count, and
    nothing is held out.

    >>> from fedquilt import fed_avg
    >>> own_test(fed_avg()).per_client.share
    0.2
    """
    return claim(algorithm, "own_test", per_client={"share": holdout})


@wrappers.register
def fine_tuned(
    algorithm: Algorithm,
    lr: Rate = 0.1,
    epochs: Passes = 1,
    batch: BatchSize = 10,
    holdout: BelowOne = 0.2,
    drop_last: DropLast = "auto",
) -> Algorithm:
    """Let every client fine-tune the model before it is tested on the client's own data (Wang 2019).

    Training itself is not changed: the fine-tuned models are used for `per_client_accuracy` alone, and thrown away. A share
    `holdout` of every client's data is kept out of training to test on. Where fine-tuning fails, as that of a model with
    batch normalisation does on a single example, the client is tested with the model as it is.

    >>> from fedquilt import fed_avg
    >>> fine_tuned(fed_avg(), epochs=2).per_client.personalise.by.name
    'fed_avg'
    """
    inner = replace(fed_avg(lr=lr, epochs=epochs, batch=batch, drop_last=drop_last), loss=algorithm.loss)
    return claim(algorithm, "fine_tuned", per_client={"share": holdout, "personalise": Personalise(by=inner)})
