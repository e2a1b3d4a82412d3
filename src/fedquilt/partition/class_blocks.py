"""Clients with disjoint blocks of classes.

Ozdayi et al. 2020, "Improving Accuracy of Federated Learning in Non-IID Settings", Table 1 (FL - NIID(5)): of two agents,
the "first agent gets all samples of first 5 classes, and the other agent gets the remaining samples". In general classes
are cut, in order, into blocks of so many; the last block may be smaller. Where there are more clients than blocks, the
first clients share the first block, the next ones the second, and so on: clients of a block hold the same number of each
of its classes, to within one.
"""

from __future__ import annotations

import numpy as np

from fedquilt.base.arguments import Seed, Size
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import partitions
from fedquilt.base.rng import generator
from fedquilt.data.data import Data
from fedquilt.partition.dealing import Labels, deal_by_class, even_sizes, require_classes, with_client_tests
from fedquilt.partition.partition import Partition


@partitions.register
def class_blocks(
    labels: Labels, clients: Size, classes: Size, seed: Seed = 0, own_test: bool = False, data: Data | None = None
) -> Partition:
    """Give each client all examples of a block of classes; more clients than blocks share them evenly (Ozdayi 2020).

    Every example belongs to one client. The seed decides who gets which examples where clients share a block. With
    `own_test`, the test set of `data` is dealt out too.

    >>> labels = np.repeat(np.arange(10), 3)
    >>> held = class_blocks(labels, clients=2, classes=5)
    >>> [np.unique(labels[held.client(k)]).tolist() for k in range(2)]
    [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    """
    require_classes(labels)
    kinds, kind = np.unique(labels, return_inverse=True)
    block, blocks = kind // classes, -(-len(kinds) // classes)
    if clients < blocks:
        raise SpecError(
            f"clients: {len(kinds)} classes make {blocks} blocks of {classes}, too many for {clients} clients; use "
            f"{blocks} clients or more, or classes = {-(-len(kinds) // clients)}"
        )
    indices, sizes = [], []
    for number, sharing in enumerate(even_sizes(clients, blocks).tolist()):
        rows = np.flatnonzero(block == number)
        if sharing > len(rows):
            raise SpecError(
                f"clients: {sharing} clients cannot share the {len(rows)} examples of a block of classes; use fewer "
                "clients, or more classes per client"
            )
        dealt = deal_by_class(labels[rows], sharing, generator(seed, "partition class blocks", number))
        indices.append(rows[dealt])
        sizes.append(even_sizes(len(rows), sharing))
    held = Partition.by_sizes(np.concatenate(indices), np.concatenate(sizes))
    return with_client_tests(held, labels, data, seed) if own_test else held
