"""The per-client test: accuracy on a client's data, of the model that it would use, the run's or a personal one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.context import ClientData, Context
from fedquilt.base.rng import generator
from fedquilt.compute.layout import ModelState, Tensors
from fedquilt.partition.partition import Partition
from fedquilt.round.training import ClientError, train_locally

if TYPE_CHECKING:
    from fedquilt.algorithm.exchange import Visit


def count_held_out(examples: int, share: float) -> int:
    """Return how many of a client's n examples are held out: `share`·n, rounded, but never all.

    >>> count_held_out(5, 0.4), count_held_out(1, 0.9)
    (2, 0)
    """
    return min(round(share * examples), max(examples - 1, 0))


def hold_out(partition: Partition, share: float, seed: int) -> tuple[Partition, Partition]:
    """Hold out a share of every client's examples; return what is left to train on, and what is held out.

    >>> train, test = hold_out(Partition.of([[0, 1, 2, 3, 4], [5]]), 0.4, seed=1)
    >>> train.sizes.tolist(), test.sizes.tolist()
    ([3, 1], [2, 0])
    """
    kept, tested = [], []
    for client in range(len(partition)):
        rows = partition.client(client)
        order = generator(seed, "own test", client).permutation(len(rows))
        count = count_held_out(len(rows), share)
        tested.append(np.sort(rows[order[:count]]))
        kept.append(np.sort(rows[order[count:]]))
    left = np.asarray([len(rows) for rows in kept], dtype=np.int64)
    return partition.holding(np.concatenate(kept), left), Partition.of(tested)


def personal_model(algorithm: Algorithm, context: Context, data: ClientData) -> ModelState:
    """Return the model that a client would use: its personal one or, where it has none, the run's."""
    personalise = algorithm.per_client.personalise
    if personalise is None:
        return context.start
    if personalise.client_state is not None:
        stored: Tensors | None = context.client_state.get(personalise.client_state)  # type: ignore[assignment]
        return context.start if stored is None else ModelState(**stored)
    assert personalise.by is not None
    try:
        return train_locally(personalise.by, context, data, context.start, purpose="own ").after
    except ClientError:
        return context.start


def personal_model_of(visit: Visit) -> ModelState:
    """Return the model in a client's state under an exchange's name, at first the run's."""
    return visit.context.start if visit.client_state is None else ModelState(**visit.client_state)
