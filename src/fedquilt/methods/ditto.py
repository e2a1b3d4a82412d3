"""Ditto: Li et al., Ditto: Fair and Robust Federated Learning Through Personalization (2021).

Algorithm 1: beside the shared model, every client trains a personal model, v_k ← v_k − η(∇F_k(v_k) + λ(v_k − w_t)), and
keeps it. λ says how near to the shared model it stays: 0 is local training, a large λ the shared model.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from fedquilt.algorithm import Algorithm, Exchange, Parting, Personalise, Trained, Visit, add_exchange, chain, claim
from fedquilt.algorithm.parts.directions import pull_to_start
from fedquilt.algorithm.parts.sampling import DropLast
from fedquilt.base.arguments import BelowOne, ChangingBatchSize, ChangingCount, NonNegative, Rate
from fedquilt.base.registry import wrappers
from fedquilt.methods.fed_avg import fed_avg
from fedquilt.round.per_client import personal_model_of
from fedquilt.round.training import train_locally

NAME = "ditto"


@wrappers.register
def ditto(
    algorithm: Algorithm,
    pull: NonNegative = 0.1,
    lr: Rate = 0.1,
    epochs: ChangingCount = 1,
    batch: ChangingBatchSize = 10,
    holdout: BelowOne = 0.2,
    drop_last: DropLast = "auto",
) -> Algorithm:
    """Train a personal model at every client, pulled towards the shared one (Li 2021).

    - `pull` is λ; `lr`, `epochs` and `batch` are those of the personal model's training.
    - `per_client_accuracy` is that of the personal models, on a share `holdout` of every client's data that is kept out of
      training (with 0, on what they train on). `accuracy` is still the shared model's.

    Nothing more is sent; a client keeps a second model, and trains twice.

    >>> from fedquilt import fed_avg
    >>> ditto(fed_avg(), pull=1.0).per_client.personalise.client_state
    'ditto'
    """
    inner = fed_avg(lr=lr, epochs=epochs, batch=batch, drop_last=drop_last)
    inner = replace(inner, loss=algorithm.loss)
    if pull:
        inner = replace(inner, local=chain(pull_to_start(pull), inner.local))
    personal = add_exchange(algorithm, Exchange(NAME, end=partial(_train_personal_model, inner), remembers=True))
    return claim(personal, NAME, per_client={"share": holdout, "personalise": Personalise(client_state=NAME)})


def _train_personal_model(inner: Algorithm, visit: Visit, trained: Trained) -> Parting:
    personal = train_locally(inner, visit.context, visit.data, personal_model_of(visit), purpose="ditto ")
    after = personal.after
    state = {"vector": after.vector, "buffers": after.buffers, "counters": after.counters}
    return Parting(client_state=state, batches=personal.steps, gradients=personal.examples)
