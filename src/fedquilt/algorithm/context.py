"""What a client is given for a round, and the data that it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from fedquilt.base.types import Indices
from fedquilt.compute.layout import ModelState, State
from fedquilt.compute.replica import Replica
from fedquilt.data.data import Data, Split

Relabel = Callable[[Tensor, int], Tensor]
"""(labels, number of classes) -> other labels."""


@dataclass(frozen=True, eq=False)
class Context:
    """What a client is given: the model, the broadcast, its client state, and the keys of its random draws.

    `tamper` is what a client that is simulated as corrupt does to its update before it sends it.
    """

    replica: Replica
    start: ModelState
    seed: int
    round: int
    client: int
    slot: int
    client_state: State = field(default_factory=dict)
    broadcast: State = field(default_factory=dict)
    tamper: Callable[[Tensor], Tensor] | None = None

    @property
    def key(self) -> tuple[int, int, int]:
        """The key of this client's draws in this round."""
        return self.round, self.client, self.slot


@dataclass(frozen=True, eq=False)
class ClientData:
    """A client's examples: rows of a split, with the data set's way of making them ready.

    `relabel` is what a client that is simulated as corrupt makes of its labels, given the number of classes.
    """

    data: Data
    split: Split
    rows: Indices
    relabel: Relabel | None = None

    def __len__(self) -> int:
        return len(self.rows)
