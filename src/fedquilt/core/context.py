"""What a client is given for a round, and the data that it holds."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedquilt.core.algorithm import Indices
from fedquilt.core.params import ModelState
from fedquilt.core.transform import State
from fedquilt.core.workbench import Workbench
from fedquilt.data.data import Data, Split
from fedquilt.simulate.corruption import Corruption


@dataclass(frozen=True, eq=False)
class Context:
    """What a client is given: the model, what was announced with it, what it kept, and the keys of its random draws."""

    bench: Workbench
    start: ModelState
    seed: int
    round: int
    client: int
    slot: int
    kept: State = field(default_factory=dict)
    announced: State = field(default_factory=dict)
    population: int = 1
    corruption: tuple[Corruption, ...] = ()

    @property
    def key(self) -> tuple[int, int, int]:
        """The key of this client's draws in this round."""
        return self.round, self.client, self.slot


@dataclass(frozen=True, eq=False)
class ClientData:
    """A client's examples: rows of a split, with the data set's way of making them ready."""

    data: Data
    split: Split
    rows: Indices

    def __len__(self) -> int:
        """Count the examples."""
        return len(self.rows)
