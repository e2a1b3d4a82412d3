"""What server and clients send each other besides the model and the update, and the client state that comes with it.

One record for a method's whole side channel, so that methods which have one combine: control variates (SCAFFOLD), a target
distribution (FedIR), feature distributions (FedAvgR), step counts (FedNova). Everything that is sent is counted in bytes;
all state is in `ServerState.broadcast` and `ClientStore`, and so in every checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedquilt.algorithm.context import ClientData, Context
from fedquilt.algorithm.exact import LARGEST
from fedquilt.algorithm.state import ServerState
from fedquilt.algorithm.transform import Transform
from fedquilt.algorithm.updates import ClientUpdate, Cohort
from fedquilt.compute.layout import Layout, ModelState, Tensors
from fedquilt.compute.replica import Replica
from fedquilt.data.data import Data
from fedquilt.partition.population import Population


@dataclass(frozen=True, eq=False)
class InitialFederation:
    """What the server knows before the first round: what its first broadcast is made from.

    `data` has the test set and, to train on, the server's own examples alone. `uploads` is what clients uploaded before the
    first round, where the exchange has a `first_upload`: by client, those without examples left out.
    """

    data: Data
    population: Population
    replica: Replica
    model: ModelState
    uploads: Mapping[int, Tensors] = field(default_factory=dict)


class First(NamedTuple):
    """The first broadcast, the bytes that clients had to upload for it, and how many needed the first model for it."""

    broadcast: Tensors
    uploaded: int = 0
    asked: int = 0


@dataclass(frozen=True, eq=False)
class Visit:
    """One client in one round: the broadcast, its client state (none in its first round), and its data."""

    context: Context
    data: ClientData
    broadcast: Tensors
    client_state: Tensors | None


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
    """A client's new state, for its next round, its extra upload to the server, and what it trained for that.

    `batches` and `gradients` are the batches that it ran besides local training, and the examples in them.
    """

    client_state: Tensors | None = None
    extra_upload: Tensors | None = None
    batches: int = 0
    gradients: int = 0


class Upload(NamedTuple):
    """What a tensor of an extra upload must look like: `least` ≤ every value < `limit`."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    least: float = -LARGEST
    limit: float = LARGEST


class Gather(Protocol):
    """Takes in the clients' extra uploads, in any order, and returns what the server makes of them."""

    def add(self, update: ClientUpdate) -> None:
        """Take in one update. Its tensors may be overwritten after the call."""

    def finish(self) -> Tensors:
        """Return the result."""


@dataclass(frozen=True)
class Exchange:
    """The side channel of a method, in the order in which it is used; whatever is not given is left out.

    - `first_upload`: what a client uploads before the first round, where the first broadcast is made from that;
    - `first_broadcast`: what the server sends with the first model;
    - `begin`: what a client's training finds in `at.given[name]`;
    - `end`: the client's new state and its extra upload, after training;
    - `uploads`: (the model's layout, the broadcast) -> the name and the form of every tensor of the extra upload. A client
      that sends anything else, or nothing, is left out of the round;
    - `gather`: what the server makes of that (or of the updates themselves); its own step finds it in `at.given[name]`;
    - `steer`: the server's optimiser -> one that heeds what was gathered;
    - `next_broadcast`: (the broadcast, what was gathered) -> the next broadcast;
    - `regroup`: (the server's state, the members of a new group, the client state of each) -> the state that the group
      starts with, where the server's state depends on its clients.

    `remembers` says that clients have state from round to round, so that a client can take part only once per round;
    `needs_classes` that the first broadcast asks which classes clients hold (`population.classes_held`).

    >>> Exchange("steps").gather is None
    True
    """

    name: str
    first_upload: Callable[[Visit], Tensors] | None = None
    first_broadcast: Callable[[InitialFederation], First] | None = None
    begin: Callable[[Visit], Tensors] | None = None
    end: Callable[[Visit, Trained], Parting] | None = None
    uploads: Callable[[Layout, Tensors], dict[str, Upload]] | None = None
    gather: Callable[[Cohort], Gather] | None = None
    steer: Callable[[Transform], Transform] | None = None
    next_broadcast: Callable[[Tensors, Tensors], Tensors] | None = None
    regroup: Callable[[ServerState, Sequence[int], Sequence[Tensors | None]], ServerState] | None = None
    remembers: bool = False
    needs_classes: bool = False
