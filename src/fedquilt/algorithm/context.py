"""What a client is given for a round, and the data that it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
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


@dataclass(frozen=True, eq=False)
class ClientBlock:
    """Clients that are trained at once, in their order.

    What a client is given and holds is made when it is asked for, by its place in the block: there may be thousands.
    `sizes` are how many examples the clients hold; `corrupt` says whether some may be simulated as corrupt.
    """

    clients: Sequence[int]
    slots: Sequence[int]
    sizes: Sequence[int]
    context_of: Callable[[int], Context]
    data_of: Callable[[int], ClientData]
    rows_of: Callable[[], Indices]
    corrupt: bool = False

    @classmethod
    def of(cls, contexts: Sequence[Context], datas: Sequence[ClientData]) -> ClientBlock:
        """Put together what was made already."""
        return cls(
            clients=[context.client for context in contexts],
            slots=[context.slot for context in contexts],
            sizes=[len(data) for data in datas],
            context_of=contexts.__getitem__,
            data_of=datas.__getitem__,
            rows_of=lambda: np.concatenate([data.rows for data in datas]),
            corrupt=any(context.tamper for context in contexts) or any(data.relabel for data in datas),
        )

    def __len__(self) -> int:
        return len(self.clients)

    @cached_property
    def rows(self) -> Indices:
        """The positions of all clients' examples, one client after the other."""
        return self.rows_of()

    @cached_property
    def first(self) -> Context:
        """What the first client is given: the model, the round and the seed are everybody's."""
        return self.context_of(0)

    @cached_property
    def contexts(self) -> list[Context]:
        """What each client is given."""
        return [self.context_of(place) for place in range(len(self))]

    @cached_property
    def datas(self) -> list[ClientData]:
        """What each client holds."""
        return [self.data_of(place) for place in range(len(self))]

    def part(self, first: int, last: int) -> ClientBlock:
        """Return the clients from one place to before another as a block of their own."""
        if (first, last) == (0, len(self)):
            return self
        before = sum(self.sizes[:first])
        rows = slice(before, before + sum(self.sizes[first:last]))
        return ClientBlock(
            clients=self.clients[first:last],
            slots=self.slots[first:last],
            sizes=self.sizes[first:last],
            context_of=lambda place: self.context_of(first + place),
            data_of=lambda place: self.data_of(first + place),
            rows_of=lambda: self.rows[rows],
            corrupt=self.corrupt,
        )
