"""The updates of a block of clients as matrices, one row a client, so that they can be taken in at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fedquilt.core.client import ClientUpdate, Fault
from fedquilt.core.params import ModelState


@dataclass(frozen=True, eq=False)
class BlockUpdate:
    """What the clients of a block send back; the rows of `values` are theirs, `values.vector` the differences.

    They keep and tell nothing besides. Iterating yields every client's own update. The tensors are valid until the engine
    is asked for the next result.
    """

    clients: Sequence[int]
    slots: Sequence[int]
    values: ModelState
    weights: Sequence[float]
    losses: Sequence[float]
    steps: Sequence[int]
    examples: Sequence[int]

    def __len__(self) -> int:
        """Count the clients."""
        return len(self.clients)

    def __iter__(self) -> Iterator[ClientUpdate]:
        """Yield the updates one by one."""
        columns = (self.weights, self.losses, self.steps, self.examples)
        tensors = (self.values.vector, self.values.buffers, self.values.counters)
        for client, slot, *rest in zip(self.clients, self.slots, *tensors, *columns, strict=True):
            yield ClientUpdate(client, slot, *rest)


Answer = ClientUpdate | BlockUpdate | Fault
"""What an engine yields."""


def one_by_one(answers: Iterable[Answer]) -> Iterator[ClientUpdate | Fault]:
    """Take blocks apart."""
    for answer in answers:
        if isinstance(answer, BlockUpdate):
            yield from answer
        else:
            yield answer
