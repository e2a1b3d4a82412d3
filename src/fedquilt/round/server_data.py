"""The server's own data: a class-stratified share of the training data, taken away from the clients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from fedquilt.algorithm.context import ClientData, Context
from fedquilt.algorithm.state import ServerState
from fedquilt.base.errors import FedquiltError
from fedquilt.base.rng import generator
from fedquilt.base.types import Indices
from fedquilt.data.data import Data
from fedquilt.data.joined import SERVER as OWNED
from fedquilt.partition.partition import Partition
from fedquilt.round.evaluation import no_rows
from fedquilt.round.server import Server
from fedquilt.round.training import ClientError, train_locally

SERVER = -1
"""The server's index in the keys of random draws."""


def rows_of_server(data: Data) -> Indices:
    """Return the training examples that are the server's own, where the data set knows whose they are."""
    return no_rows() if data.train.ids is None else np.flatnonzero(data.train.ids == OWNED)


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
        return partition, no_rows()
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise FedquiltError("server_training: share needs one class label per example")
    taken = np.zeros(len(partition.indices), dtype=bool)
    held = labels[partition.indices]
    for label in np.unique(held):
        indices = np.flatnonzero(held == label)
        taken[generator(seed, "server share", int(label)).permutation(indices)[: round(share * len(indices))]] = True
    if not taken.any():
        raise FedquiltError(f"share = {share}: leaves the server without data; use a larger share")
    owner = np.repeat(np.arange(len(partition)), partition.sizes)
    sizes = np.bincount(owner[~taken], minlength=len(partition)).astype(np.int64)
    return partition.holding(partition.indices[~taken], sizes), np.sort(partition.indices[taken]).astype(np.int64)


def train_at_server(server: Server, state: ServerState) -> ServerState:
    """Train the model on the server's data, where the algorithm asks for it."""
    inner = server.algorithm.after.algorithm
    if inner is None:
        return state
    context = Context(server.replica, state.model, server.seed, state.round, SERVER, SERVER)
    data = ClientData(server.data, server.data.train, np.arange(len(server.data.train)))
    try:
        after = train_locally(inner, context, data, state.model).after
    except ClientError as error:
        raise FedquiltError(f"training at the server failed in round {state.round}, {error}") from error
    if not bool(torch.isfinite(after.vector).all()):
        raise FedquiltError(f"training at the server diverged in round {state.round}: use a smaller lr for it")
    return replace(state, model=after)
