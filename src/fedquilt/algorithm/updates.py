"""What clients send back, one by one, a block at once or summed, what is known of them before, and what takes it in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from fedquilt.base.text import LONGEST_TEXT, visible
from fedquilt.compute.layout import ModelState, State

LONGEST_REASON = LONGEST_TEXT + 200
"""Characters of a fault's reason: those of a text from a client, and our own around it."""


Kind = Literal["error", "unusable update", "overflow", "died", "too slow", "no examples", "absent"]
"""What kind of fault it is: reasons may all differ, and are counted by this. "overflow" is NaN, infinite or too large."""


@dataclass(frozen=True, eq=False)
class ClientUpdate:
    """What a client sends back. Its tensors are valid until the engine is asked for the next one.

    `extra_upload` and `client_state` are by exchange: what is sent besides the update, and the client's new state.
    `more_batches` and `more_gradients` count what exchanges trained besides, such as a personal model.
    """

    client: int
    slot: int
    delta: Tensor
    buffers: Tensor
    counters: Tensor
    weight: float
    loss: float
    steps: int
    examples: int
    client_state: State | None = None
    extra_upload: State = field(default_factory=dict)
    more_batches: int = 0
    more_gradients: int = 0


@dataclass(frozen=True)
class Fault:
    """A client that is left out of a round, and why; `simulated` if the simulation asked for it.

    The reason may hold what a client said, and is made safe to store and to show here, for everybody who reads it.
    """

    client: int
    slot: int
    reason: str
    simulated: bool = False
    kind: Kind = "error"

    def __post_init__(self) -> None:
        """Make the reason one line of bounded length, without control characters."""
        object.__setattr__(self, "reason", visible(self.reason, LONGEST_REASON))

    def named(self, names: Sequence[str] | None) -> dict[str, Any]:
        """Return what a record says of it, with the client's name where clients have names."""
        said = {"client": self.client, "kind": self.kind, "reason": self.reason}
        return said if names is None else said | {"name": names[self.client]}


@dataclass(frozen=True, eq=False)
class BlockUpdate:
    """What the clients of a block send back; the rows of `values` are theirs, `values.vector` the differences.

    They have neither client state nor an extra upload. Iterating yields one update per client. The tensors are valid
    until the engine is asked for the next result.
    """

    clients: Sequence[int]
    slots: Sequence[int]
    values: ModelState
    weights: Sequence[float]
    losses: Sequence[float]
    steps: Sequence[int]
    examples: Sequence[int]

    def __len__(self) -> int:
        return len(self.clients)

    def __iter__(self) -> Iterator[ClientUpdate]:
        columns = (self.weights, self.losses, self.steps, self.examples)
        tensors = (self.values.vector, self.values.buffers, self.values.counters)
        for client, slot, *rest in zip(self.clients, self.slots, *tensors, *columns, strict=True):
            yield ClientUpdate(client, slot, *rest)


@dataclass(frozen=True, eq=False)
class PartialSum:
    """What several clients send back, summed where they were trained: `total` is the sum as 64-bit integers.

    It is exact (`fedquilt.algorithm.exact`), so that the mean over a cohort has the same bits as from single updates. They
    have neither client state nor an extra upload.
    """

    clients: Sequence[int]
    slots: Sequence[int]
    total: Tensor
    weights: Sequence[float]
    losses: Sequence[float]
    steps: Sequence[int]
    examples: Sequence[int]

    def __len__(self) -> int:
        """Count the clients."""
        return len(self.clients)


Answer = ClientUpdate | BlockUpdate | PartialSum | Fault
"""What an engine yields. A partial sum only where the plan says that nobody needs single updates (`Plan.sums`)."""


def one_by_one(answers: Iterable[Answer]) -> Iterator[ClientUpdate | Fault]:
    """Take blocks apart; a sum cannot be."""
    for answer in answers:
        assert not isinstance(answer, PartialSum), "updates were summed that are needed one by one"
        if isinstance(answer, BlockUpdate):
            yield from answer
        else:
            yield answer


class Cohort(NamedTuple):
    """What is known of a round's cohort before it answers."""

    parameters: int
    weight: float
    clients: int
    population: int


class Fold(Protocol):
    """Takes in updates one at a time, in any order, and ends with one vector."""

    def add(self, update: ClientUpdate) -> None:
        """Take in one update. Its tensors may be overwritten after the call."""

    def finish(self) -> Tensor | None:
        """Return the result, or nothing if no weight was reported."""


@runtime_checkable
class BlockFold(Fold, Protocol):
    """A fold that can take in the updates of a block of clients at once, with the same bits."""

    def add_block(self, block: BlockUpdate) -> None:
        """Take in the updates of a block. Its tensors may be overwritten after the call."""


@runtime_checkable
class SummingFold(Fold, Protocol):
    """A fold that is an exact sum: parts of it can be made elsewhere, and have the same bits."""

    @property
    def total(self) -> Tensor:
        """What was taken in, as 64-bit integers."""

    def add_sum(self, part: PartialSum) -> None:
        """Take in what another such fold, for the same cohort, has taken in."""


Reduce = Callable[[Cohort], Fold]
"""The cohort -> an empty fold."""
