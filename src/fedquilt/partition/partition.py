"""Who holds which example: two arrays, whatever the number of clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedquilt.base.errors import SpecError
from fedquilt.base.types import Indices
from fedquilt.data.data import Noise

Positions = npt.NDArray[np.int32] | npt.NDArray[np.int64]
"""Positions in a data set, in as few bytes as they need: with many clients, they are what a population costs."""


class ClassCounts(NamedTuple):
    """Who holds how many of which class; pairs of client and class that do not occur are left out."""

    client: Indices
    label: Indices
    examples: Indices


@dataclass(frozen=True, eq=False, repr=False)
class Partition:
    """The examples of every client, as positions in the training set.

    Client k holds `indices[offsets[k]:offsets[k + 1]]`. No object exists per client, so that a million clients cost
    megabytes. Where there is a per-client test, `test` is the same for the test set. `noise` is what clients'
    inputs differ by, where they do.

    >>> held = Partition.of([[4, 2], [0], [1, 3]])
    >>> len(held), held.client(0).tolist(), held.sizes.tolist()
    (3, [4, 2], [2, 1, 2])
    """

    indices: Positions
    offsets: Indices
    test: Partition | None = None
    noise: Noise | None = None

    @classmethod
    def of(cls, clients: Sequence[Sequence[int] | Indices]) -> Partition:
        """Make a partition from one list of indices per client."""
        if not len(clients):
            raise SpecError("a partition needs at least one client")
        arrays = [np.asarray(client) for client in clients]
        for k, held in enumerate(arrays):
            if len(held) and not (np.issubdtype(held.dtype, np.integer) and int(held.min()) >= 0):
                raise SpecError(f"client {k}: indices into the training set must be integers from 0, got {held!r}")
        indices = np.concatenate([held.astype(np.int64) for held in arrays])
        return cls.by_sizes(indices, np.asarray([len(held) for held in arrays], dtype=np.int64))

    @classmethod
    def by_sizes(cls, indices: Positions, sizes: Indices) -> Partition:
        """Cut an ordered array of positions into clients of the given sizes."""
        offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
        np.cumsum(sizes, out=offsets[1:])
        return cls(indices=small(indices), offsets=offsets)

    def __repr__(self) -> str:
        return f"Partition({len(self)} clients, {len(self.indices)} examples)"

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def client(self, k: int) -> Indices:
        """Return the positions that client k holds."""
        return self.indices[self.offsets[k] : self.offsets[k + 1]].astype(np.int64)

    def size(self, k: int) -> int:
        """Count the examples of client k; cheap where there are a million clients."""
        return int(self.offsets[k + 1] - self.offsets[k])

    def sizes_of(self, clients: Sequence[int]) -> Indices:
        """Count the examples of some clients.

        >>> Partition.of([[4, 2], [0], [1, 3]]).sizes_of([2, 1]).tolist()
        [2, 1]
        """
        numbers = np.asarray(clients, dtype=np.int64)
        return self.offsets[numbers + 1] - self.offsets[numbers]

    def of_clients(self, clients: Sequence[int]) -> Indices:
        """Return the positions that some clients hold, one client after the other.

        >>> Partition.of([[4, 2], [0], [1, 3]]).of_clients([2, 0]).tolist()
        [1, 3, 4, 2]
        """
        sizes = self.sizes_of(clients)
        starts = self.offsets[np.asarray(clients, dtype=np.int64)] - (np.cumsum(sizes) - sizes)
        rows: Indices = self.indices[np.arange(sizes.sum()) + np.repeat(starts, sizes)]
        return rows.astype(np.int64)

    def only(self, clients: Sequence[int]) -> tuple[Partition, Indices]:
        """Return the same clients, of whom only these hold examples, and the positions that those hold now.

        The partition that is returned counts its positions within them, as whoever has only those examples does.

        >>> alone, rows = Partition.of([[4, 2], [0], [1, 3]]).only([2])
        >>> alone.sizes.tolist(), alone.client(2).tolist(), rows.tolist()
        ([0, 0, 2], [0, 1], [1, 3])
        """
        hosted = np.unique(np.asarray(clients, dtype=np.int64))
        sizes = np.zeros(len(self), dtype=np.int64)
        sizes[hosted] = self.sizes[hosted]
        rows = self.of_clients(hosted.tolist())
        return Partition.by_sizes(np.arange(len(rows)), sizes), rows

    @property
    def sizes(self) -> Indices:
        """The number of examples of every client."""
        return np.diff(self.offsets)

    def holding(self, indices: Positions, sizes: Indices) -> Partition:
        """Return the same clients with other training examples; the rest stays as it is."""
        other = Partition.by_sizes(indices, sizes)
        return replace(self, indices=other.indices, offsets=other.offsets)

    def pooled(self) -> Partition:
        """Return the partition in which one client holds everything."""
        held = self.holding(self.indices, np.asarray([len(self.indices)], dtype=np.int64))
        return replace(held, test=None)

    def class_cells(self, labels: npt.NDArray[np.integer]) -> ClassCounts:
        """Count each client's examples by class, where there are any: by client, then by class.

        >>> [part.tolist() for part in Partition.of([[0, 1], [2], []]).class_cells(np.array([1, 1, 0]))]
        [[0, 1], [1, 0], [2, 1]]
        """
        owner = np.repeat(np.arange(len(self), dtype=np.int64), self.sizes)
        # No table of clients × classes: with a million clients and many classes it would not fit into memory.
        held = labels[self.indices].astype(np.int64)
        least, span = (int(held.min()), int(np.ptp(held)) + 1) if len(held) else (0, 1)
        cells, counts = np.unique(owner * span + (held - least), return_counts=True)
        client, label = np.divmod(cells, span)
        return ClassCounts(client, label + least, counts)

    def class_counts(self, labels: npt.NDArray[np.integer], classes: int) -> npt.NDArray[np.int64]:
        """Count each client's examples by class: one row per client.

        >>> Partition.of([[0, 1], [2]]).class_counts(np.array([1, 1, 0]), classes=2).tolist()
        [[0, 2], [1, 0]]
        """
        owner = np.repeat(np.arange(len(self), dtype=np.int64), self.sizes)
        cells = owner * classes + labels[self.indices]
        return np.bincount(cells, minlength=len(self) * classes).reshape(len(self), classes)


def small(values: npt.NDArray[np.integer]) -> Positions:
    """Return whole numbers in four bytes each, where they fit; as they are, if they are so already.

    >>> small(np.array([1, 2])).dtype, small(np.array([2**31])).dtype
    (dtype('int32'), dtype('int64'))
    """
    values = np.asarray(values)
    if values.max(initial=0) < 2**31 and values.min(initial=0) >= -(2**31):
        return values.astype(np.int32, copy=False)
    return values.astype(np.int64, copy=False)
