"""What the planning of a round may know of all clients: their sizes and, in simulation, their classes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fedquilt.base.errors import FedquiltError
from fedquilt.base.types import Indices
from fedquilt.partition.partition import Partition


@dataclass(frozen=True, eq=False)
class Population:
    """All clients of a federation.

    >>> held = Partition.of([[0, 1], [2]])
    >>> Population(held, np.array([1, 1, 0]), classes=2).class_counts.tolist()
    [[0, 2], [1, 0]]
    """

    partition: Partition
    labels: npt.NDArray[np.integer]
    classes: int

    def __len__(self) -> int:
        """Count the clients."""
        return len(self.partition)

    @cached_property
    def sizes(self) -> Indices:
        """The number of examples of every client."""
        return self.partition.sizes

    @cached_property
    def class_counts(self) -> npt.NDArray[np.int64]:
        """The number of examples of every class, one row per client: known in simulation only."""
        self._require_classes()
        return self.partition.class_counts(self.labels, self.classes)

    @cached_property
    def commonest_class(self) -> npt.NDArray[np.int64]:
        """The most frequent class of every client, the first of equals; 0 for one without examples.

        >>> Population(Partition.of([[0, 1, 2], [2, 3], []]), np.array([1, 1, 0, 2]), classes=3).commonest_class.tolist()
        [1, 0, 0]
        """
        self._require_classes()
        client, label, counts = self.partition.class_cells(self.labels)
        rising = np.lexsort((-label, counts))
        commonest = np.zeros(len(self), dtype=np.int64)
        commonest[client[rising]] = label[rising]  # of several values for one place, the last stays
        return commonest

    def _require_classes(self) -> None:
        if self.labels.ndim != 1 or not self.classes:
            these = "sequences" if self.classes else "numbers"
            raise FedquiltError(f"counting a client's classes needs one label per example, but these are {these}")
