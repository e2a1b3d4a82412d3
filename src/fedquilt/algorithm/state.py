"""All state of a run, so that a checkpoint is complete by construction.

`ServerState` is what the server knows after a round; `ClientStore` is the clients' state between rounds. A run is one group
of clients with one ServerState; some methods split it into several (FL+HC).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fedquilt.base.types import Indices
from fedquilt.compute.layout import ModelState, State


@dataclass(frozen=True, eq=False)
class ServerState:
    """The model after `round` rounds, the server optimiser's state, and what is broadcast to clients with the model."""

    round: int
    model: ModelState
    optimiser: State
    broadcast: State = field(default_factory=dict)


class ClientStore:
    """The clients' state between rounds, by client; a client without state costs nothing."""

    def __init__(self, client_states: Mapping[int, State] | None = None) -> None:
        self._client_states = dict(client_states or {})

    def get(self, client: int) -> State | None:
        """Return a client's state, if it has one."""
        return self._client_states.get(client)

    def updated(self, client_states: Mapping[int, State]) -> ClientStore:
        """Return the store with these new client states; this one stays as it is."""
        return ClientStore({**self._client_states, **client_states}) if client_states else self

    def items(self) -> Iterator[tuple[int, State]]:
        """Iterate over clients and their states, by client."""
        return iter(sorted(self._client_states.items()))


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
