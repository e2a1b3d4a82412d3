"""What a server decides about a run before the first round and all its sites must do alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.parts.sampling import Epochs
from fedquilt.base.records import replaced
from fedquilt.base.types import Indices
from fedquilt.round.rehearsal import Rehearsal


@dataclass(frozen=True)
class Agreement:
    """What server and sites have to agree on, or their bits would differ: plain values, which can be sent as JSON.

    `clients` is how many there are, `largest` the size of the largest. `channels_last` says how convolutions lie in memory,
    `two_examples` that the model cannot be trained on a single example.

    >>> Agreement(clients=2, largest=20, channels_last=True, two_examples=False).clients
    2
    """

    clients: int
    largest: int
    channels_last: bool
    two_examples: bool

    def applied(self, algorithm: Algorithm) -> Algorithm:
        """Return the algorithm as it is run with this model."""
        changed: Any = replaced(algorithm, Epochs, Epochs.without_single) if self.two_examples else algorithm
        return changed  # type: ignore[no-any-return]


def agree(rehearsal: Rehearsal, sizes: Indices) -> Agreement:
    """Try the model out on the server's own examples, and return what was found.

    What is in clients' examples decides none of it.
    """
    rehearsal.replica.put_channels_last(True)
    channels_last = rehearsal.runs()
    rehearsal.replica.put_channels_last(channels_last)
    return Agreement(len(sizes), int(sizes.max()), channels_last, rehearsal.needs_two_examples())
