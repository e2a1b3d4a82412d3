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
class ClassesHeld:
    """Which classes the clients hold: known in simulation only, since it takes all clients' labels.

    >>> held = Partition.of([[0, 1], [2]])
    >>> ClassesHeld(held, np.array([1, 1, 0]), classes=2).counts.tolist()
    [[0, 2], [1, 0]]
    """

    partition: Partition
    labels: npt.NDArray[np.integer]
    classes: int

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """The number of examples of every class, one row per client."""
        self._require_classes()
        return self.partition.class_counts(self.labels, self.classes)

    @cached_property
    def commonest(self) -> npt.NDArray[np.int64]:
        """The most frequent class of every client, the first of equals; 0 for one without examples.

        >>> ClassesHeld(Partition.of([[0, 1, 2], [2, 3], []]), np.array([1, 1, 0, 2]), classes=3).commonest.tolist()
        [1, 0, 0]
        """
        self._require_classes()
        client, label, counts = self.partition.class_cells(self.labels)
        rising = np.lexsort((-label, counts))
        commonest = np.zeros(len(self.partition), dtype=np.int64)
        commonest[client[rising]] = label[rising]  # of several values for one index, the last stays
        return commonest

    def _require_classes(self) -> None:
        if self.labels.ndim != 1 or not self.classes:
            these = "sequences" if self.classes else "numbers"
            raise FedquiltError(f"counting a client's classes needs one label per example, but these are {these}")


@dataclass(frozen=True, eq=False)
class Population:
    """All clients of a federation: how many examples each has and, in simulation, of which classes.

    >>> len(Population(np.array([20, 5])))
    2
    """

    sizes: Indices
    simulated: ClassesHeld | None = None

    @classmethod
    def of(cls, partition: Partition, labels: npt.NDArray[np.integer], classes: int) -> Population:
        """Return the population of a simulation, where all labels are known."""
        return cls(partition.sizes, ClassesHeld(partition, labels, classes))

    def __len__(self) -> int:
        """Count the clients."""
        return len(self.sizes)

    @property
    def classes_held(self) -> ClassesHeld:
        """Which classes the clients hold, for those who simulate something by class.

        >>> Population(np.array([20, 5])).classes_held
        Traceback (most recent call last):
        fedquilt.base.errors.FedquiltError: which classes clients hold is known in simulation only, not to a real server
        """
        if self.simulated is None:
            raise FedquiltError("which classes clients hold is known in simulation only, not to a real server")
        return self.simulated
