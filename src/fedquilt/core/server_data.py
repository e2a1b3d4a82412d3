"""The server's own data: a class-stratified share of the training data, taken away from the clients."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from fedquilt.core.algorithm import Indices
from fedquilt.core.context import ClientData, Context
from fedquilt.core.fit import ClientError, fit
from fedquilt.core.rng import generator
from fedquilt.core.state import ServerState
from fedquilt.errors import FedquiltError
from fedquilt.partition.partition import Partition

if TYPE_CHECKING:
    from fedquilt.core.federation import Federation

SERVER = -1
"""The server's place in the keys of random draws."""


def take_share(
    partition: Partition, labels: npt.NDArray[np.integer], share: float, seed: int
) -> tuple[Partition, Indices]:
    """Take a share of every class from the clients; return who holds what afterwards, and the rows taken.

    >>> held = Partition.of([[0, 1, 2, 3], [4, 5, 6, 7]])
    >>> left, taken = take_share(held, np.array([0, 0, 0, 0, 1, 1, 1, 1]), 0.25, seed=1)
    >>> len(taken), left.sizes.tolist()
    (2, [3, 3])
    """
    if not share:
        return partition, np.zeros(0, dtype=np.int64)
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise FedquiltError("a class-stratified share needs one label an example, a class")
    taken = np.zeros(len(partition.indices), dtype=bool)
    held = labels[partition.indices]
    for label in np.unique(held):
        places = np.flatnonzero(held == label)
        taken[generator(seed, "server share", int(label)).permutation(places)[: round(share * len(places))]] = True
    if not taken.any():
        raise FedquiltError(f"share = {share}: leaves the server without data; take a larger one")
    owner = np.repeat(np.arange(len(partition)), partition.sizes)
    sizes = np.bincount(owner[~taken], minlength=len(partition)).astype(np.int64)
    return partition.holding(partition.indices[~taken], sizes), np.sort(partition.indices[taken]).astype(np.int64)


def train_at_server(federation: Federation, state: ServerState) -> ServerState:
    """Train the model on the server's data, where the algorithm asks for it."""
    inner = federation.algorithm.after
    if inner is None:
        return state
    context = Context(federation.bench, state.model, federation.seed, state.round, SERVER, SERVER)
    data = ClientData(federation.data, federation.data.train, federation.server_rows)
    try:
        after = fit(inner, context, data, state.model).after
    except ClientError as error:
        raise FedquiltError(f"training at the server failed in round {state.round}, {error}") from error
    if not bool(torch.isfinite(after.vector).all()):
        raise FedquiltError(f"training at the server diverged in round {state.round}: take a smaller rate for it")
    return replace(state, model=after)
