"""Who holds which example: two arrays, whatever the number of clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedquilt.errors import SpecError

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Partition:
    """The examples of every client, as positions in the training set.

    Client k holds `indices[offsets[k]:offsets[k + 1]]`. No object exists per client, so that a million clients cost
    megabytes.

    >>> held = Partition.of([[4, 2], [0], [1, 3]])
    >>> len(held), held.client(0).tolist(), held.sizes.tolist()
    (3, [4, 2], [2, 1, 2])
    """

    indices: Indices
    offsets: Indices

    @classmethod
    def of(cls, clients: Sequence[Sequence[int] | Indices]) -> Partition:
        """Make a partition from one list of positions a client."""
        if not len(clients):
            raise SpecError("a partition needs at least one client")
        arrays = [np.asarray(client) for client in clients]
        for k, held in enumerate(arrays):
            if len(held) and not (np.issubdtype(held.dtype, np.integer) and int(held.min()) >= 0):
                raise SpecError(f"client {k}: positions in the training set are whole numbers from 0, got {held!r}")
        indices = np.concatenate([held.astype(np.int64) for held in arrays])
        return cls.by_sizes(indices, np.asarray([len(held) for held in arrays], dtype=np.int64))

    @classmethod
    def by_sizes(cls, indices: Indices, sizes: Indices) -> Partition:
        """Cut an ordered array of positions into clients of the given sizes."""
        offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
        np.cumsum(sizes, out=offsets[1:])
        return cls(indices=np.asarray(indices, dtype=np.int64), offsets=offsets)

    def __repr__(self) -> str:
        """Say how large it is, not all that is in it."""
        return f"Partition({len(self)} clients, {len(self.indices)} examples)"

    def __len__(self) -> int:
        """Count the clients."""
        return len(self.offsets) - 1

    def client(self, k: int) -> Indices:
        """Return the positions that client k holds."""
        return self.indices[self.offsets[k] : self.offsets[k + 1]]

    @property
    def sizes(self) -> Indices:
        """The number of examples of every client."""
        return np.diff(self.offsets)

    def pooled(self) -> Partition:
        """Return the partition in which one client holds everything."""
        return Partition.by_sizes(self.indices, np.asarray([len(self.indices)], dtype=np.int64))

    def class_counts(self, labels: npt.NDArray[np.integer], classes: int) -> npt.NDArray[np.int64]:
        """Count each client's examples by class: one row a client.

        >>> Partition.of([[0, 1], [2]]).class_counts(np.array([1, 1, 0]), classes=2).tolist()
        [[0, 2], [1, 0]]
        """
        owner = np.repeat(np.arange(len(self), dtype=np.int64), self.sizes)
        cells = owner * classes + labels[self.indices]
        return np.bincount(cells, minlength=len(self) * classes).reshape(len(self), classes)
