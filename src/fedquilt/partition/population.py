"""What the planning of a round may know of all clients: their sizes and names and, for those who ask, their classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fedquilt.base.errors import FedquiltError
from fedquilt.base.types import Indices
from fedquilt.partition.partition import ClassCounts, Partition


def require_one_label(labels: npt.NDArray[np.integer], classes: int) -> None:
    """Refuse to count the classes of what has none, or several per example.

    >>> require_one_label(np.zeros((2, 7), dtype=np.int64), classes=3)
    Traceback (most recent call last):
    fedquilt.base.errors.FedquiltError: counting a client's classes needs one label per example, but these are sequences
    """
    if labels.ndim != 1 or not classes:
        these = "sequences" if classes else "numbers"
        raise FedquiltError(f"counting a client's classes needs one label per example, but these are {these}")


@dataclass(frozen=True, eq=False)
class ClassesHeld:
    """How many examples of every class each of the `clients` holds: counts alone, neither labels nor examples.

    >>> held = ClassesHeld.of(Partition.of([[0, 1], [2]]), np.array([1, 1, 0]), classes=2)
    >>> held.counts.tolist(), held.totals.tolist()
    ([[0, 2], [1, 0]], [1, 2])
    """

    cells: ClassCounts
    clients: int
    classes: int

    @classmethod
    def of(cls, partition: Partition, labels: npt.NDArray[np.integer], classes: int) -> ClassesHeld:
        """Count the classes of all clients, where all labels are known: in simulation."""
        require_one_label(labels, classes)
        return cls(partition.class_cells(labels), len(partition), classes)

    @classmethod
    def reported(cls, counts: Mapping[int, Indices], clients: int, classes: int) -> ClassesHeld:
        """Put together what sites report of their clients: the examples of every class, by client.

        >>> ClassesHeld.reported({1: np.array([0, 3])}, clients=2, classes=2).counts.tolist()
        [[0, 0], [0, 3]]
        """
        for client, each in counts.items():
            if not 0 <= client < clients or each.shape != (classes,) or each.min(initial=0) < 0:
                raise FedquiltError(
                    f"client {client}: its class counts cannot be used: {classes} whole numbers from 0 are needed, from a "
                    f"client below {clients}, but these are {each.tolist()}"
                )
        hosted = sorted(counts)
        table = np.asarray([counts[client] for client in hosted], dtype=np.int64).reshape(len(hosted), classes)
        row, label = np.nonzero(table)
        cells = ClassCounts(np.asarray(hosted, dtype=np.int64)[row], label.astype(np.int64), table[row, label])
        return cls(cells, clients, classes)

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """The number of examples of every class, one row per client."""
        table = np.zeros((self.clients, self.classes), dtype=np.int64)
        table[self.cells.client, self.cells.label] = self.cells.examples
        return table

    @property
    def totals(self) -> npt.NDArray[np.int64]:
        """The number of examples of every class, of all clients together."""
        totals = np.zeros(self.classes, dtype=np.int64)
        np.add.at(totals, self.cells.label, self.cells.examples)
        return totals

    @cached_property
    def commonest(self) -> npt.NDArray[np.int64]:
        """The most frequent class of every client, the first of equals; 0 for one without examples.

        >>> held = Partition.of([[0, 1, 2], [2, 3], []])
        >>> ClassesHeld.of(held, np.array([1, 1, 0, 2]), classes=3).commonest.tolist()
        [1, 0, 0]
        """
        client, label, counts = self.cells
        rising = np.lexsort((-label, counts))
        commonest = np.zeros(self.clients, dtype=np.int64)
        commonest[client[rising]] = label[rising]  # of several values for one index, the last stays
        return commonest


@dataclass(frozen=True, eq=False)
class Population:
    """All clients of a federation: how many examples each has to train on, and what messages call them.

    `counted` is how many examples of which class they hold: it is there only if something asked for it.

    >>> population = Population(np.array([20, 5]))
    >>> len(population), population.name_of(1), Population(np.array([20, 5]), ("Bern", "Oslo")).name_of(1)
    (2, 'client 1', 'Oslo')
    """

    sizes: Indices
    names: tuple[str, ...] | None = None
    counted: ClassesHeld | None = None

    def __len__(self) -> int:
        return len(self.sizes)

    def name_of(self, client: int) -> str:
        """Return what messages call a client."""
        return f"client {client}" if self.names is None else self.names[client]

    @property
    def classes_held(self) -> ClassesHeld:
        """Which classes the clients hold, for whoever said that it needs that (`needs_classes`).

        >>> Population(np.array([20, 5])).classes_held
        Traceback (most recent call last):
        fedquilt.base.errors.FedquiltError: which classes clients hold is not known here. A simulation knows it if the rule
        or exchange that asks has `needs_classes = True`; a server, if its sites have reported it
        """
        if self.counted is None:
            raise FedquiltError(
                "which classes clients hold is not known here. A simulation knows it if the rule or exchange that asks has "
                "`needs_classes = True`; a server, if its sites have reported it"
            )
        return self.counted
