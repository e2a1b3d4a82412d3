"""All state of a run, so that a checkpoint is complete by construction.

`ServerState` is what the server knows after a round; `ClientStore` is what clients keep between rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fedquilt.core.algorithm import Algorithm
from fedquilt.core.params import ModelState
from fedquilt.core.transform import State


@dataclass(frozen=True, eq=False)
class ServerState:
    """The model after `round` rounds, and the server optimiser's state."""

    round: int
    model: ModelState
    optimiser: State


def initial_state(algorithm: Algorithm, model: ModelState) -> ServerState:
    """Return the state before the first round."""
    return ServerState(0, model, algorithm.server.init({"model": model.vector}))


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
