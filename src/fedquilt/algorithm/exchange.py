"""What server and clients tell each other besides the model and the update, and what a client remembers of it.

One record for a method's whole side channel, so that methods which have one combine: control variates (SCAFFOLD), a target
distribution (FedIR), feature distributions (FedAvgR), step counts (FedNova). Everything that is told is counted in bytes;
everything that is remembered is in `ServerState.broadcast` and `ClientStore`, and so in every checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedquilt.algorithm.cohort import Cohort
from fedquilt.algorithm.context import ClientData, Context
from fedquilt.algorithm.exact import LARGEST
from fedquilt.algorithm.state import ServerState
from fedquilt.algorithm.transform import Transform
from fedquilt.algorithm.updates import ClientUpdate
from fedquilt.base.types import Indices
from fedquilt.compute.layout import Layout, ModelState, Tensors
from fedquilt.compute.replica import Replica
from fedquilt.data.data import Data
from fedquilt.partition.partition import Partition


@dataclass(frozen=True, eq=False)
class Setting:
    """A federation before its first round: what the server's first announcement is made from."""

    data: Data
    partition: Partition
    server_rows: Indices
    replica: Replica
    model: ModelState


class First(NamedTuple):
    """The first announcement, the bytes that clients had to upload for it, and how many needed the first model for it."""

    broadcast: Tensors
    uploaded: int = 0
    asked: int = 0


@dataclass(frozen=True, eq=False)
class Visit:
    """One client in one round: what it was told, what it remembers, its data."""

    context: Context
    data: ClientData
    broadcast: Tensors
    kept: Tensors | None


@dataclass(frozen=True, eq=False)
class Trained:
    """Local training after its last step: the model, the update, the number of steps, and the round's learning rate.

    `effective_steps` counts a step's echo in later ones too, where the client has momentum (Wang 2020, FedNova).
    """

    after: ModelState
    delta: Tensor
    steps: int
    effective_steps: float
    lr: float


class Parting(NamedTuple):
    """What a client remembers until its next round, what it tells the server, and what it trained for that.

    `batches` and `gradients` are the batches that it ran besides local training, and the examples in them.
    """

    keep: Tensors | None = None
    told: Tensors | None = None
    batches: int = 0
    gradients: int = 0


class Upload(NamedTuple):
    """What a tensor that clients tell must look like: `least` ≤ every value < `limit`."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    least: float = -LARGEST
    limit: float = LARGEST


class Gather(Protocol):
    """Takes in what clients tell, in any order, and ends with what the server makes of it."""

    def add(self, update: ClientUpdate) -> None:
        """Take in one update. Its tensors may be overwritten after the call."""

    def finish(self) -> Tensors:
        """Return the result."""


@dataclass(frozen=True)
class Exchange:
    """The side channel of a method, in the order in which it is used; whatever is not given is left out.

    - `first_broadcast`: what the server tells at first;
    - `begin`: what a client's training finds in `at.given[name]`;
    - `end`: what the client remembers and tells after training;
    - `uploads`: (the model's layout, what was announced) -> the name and the form of every tensor that it tells. A client
      that tells anything else, or nothing, is left out of the round;
    - `gather`: what the server makes of that (or of the updates themselves); its own step finds it in `at.given[name]`;
    - `steer`: the server's optimiser -> one that heeds what was gathered;
    - `next_broadcast`: (what was announced, what was gathered) -> what is announced next;
    - `regroup`: (the server's state, the members of a new group, what each of them remembers) -> the state that the group
      goes on with, where the server's memory is of its clients.

    `remembers` says that a client keeps something from round to round, so that it can take part but once in each.

    >>> Exchange("steps").gather is None
    True
    """

    name: str
    first_broadcast: Callable[[Setting], First] | None = None
    begin: Callable[[Visit], Tensors] | None = None
    end: Callable[[Visit, Trained], Parting] | None = None
    uploads: Callable[[Layout, Tensors], dict[str, Upload]] | None = None
    gather: Callable[[Cohort], Gather] | None = None
    steer: Callable[[Transform], Transform] | None = None
    next_broadcast: Callable[[Tensors, Tensors], Tensors] | None = None
    regroup: Callable[[ServerState, Sequence[int], Sequence[Tensors | None]], ServerState] | None = None
    remembers: bool = False
