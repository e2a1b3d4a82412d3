"""All state of a run, so that a checkpoint is complete by construction.

`ServerState` is what the server knows after a round; `ClientStore` is what clients keep between rounds. A run is one group
of clients with one ServerState; some methods split it into several (FL+HC).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fedquilt.base.types import Indices
from fedquilt.compute.layout import ModelState, State


@dataclass(frozen=True, eq=False)
class ServerState:
    """The model after `round` rounds, the server optimiser's state, and what is announced to clients with the model."""

    round: int
    model: ModelState
    optimiser: State
    broadcast: State = field(default_factory=dict)


class ClientStore:
    """What clients keep between rounds, by client; those that keep nothing cost nothing."""

    def __init__(self, kept: Mapping[int, State] | None = None) -> None:
        """Start from what was kept before."""
        self._kept = dict(kept or {})

    def get(self, client: int) -> State | None:
        """Return what a client kept."""
        return self._kept.get(client)

    def updated(self, kept: Mapping[int, State]) -> ClientStore:
        """Return the store after a round in which clients kept these; this one stays as it is."""
        return ClientStore({**self._kept, **kept}) if kept else self

    def items(self) -> Iterator[tuple[int, State]]:
        """Iterate over clients and what they kept, by client."""
        return iter(sorted(self._kept.items()))


@dataclass(frozen=True, eq=False)
class Group:
    """Clients that train one model together; `clients` is nothing where it is all of them."""

    state: ServerState
    clients: Indices | None = None


@dataclass(frozen=True, eq=False)
class RunState:
    """Everything that a run carries from one round to the next."""

    groups: tuple[Group, ...]
    store: ClientStore = field(default_factory=ClientStore)

    @classmethod
    def of(cls, state: ServerState, store: ClientStore | None = None) -> RunState:
        """Return the state of a run whose clients are all in one group."""
        return cls((Group(state),), store or ClientStore())

    @property
    def round(self) -> int:
        """The rounds that are done."""
        return self.groups[0].state.round
