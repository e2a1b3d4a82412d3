"""The stratified IID partition: every client has the same number of examples of every class.

Ozdayi et al. 2020, "Improving Accuracy of Federated Learning in Non-IID Settings", Table 1 (FL - IID): "each agent gets
same number of instances from all 10 classes".
"""

from __future__ import annotations

from fedquilt.base.arguments import Seed, Size
from fedquilt.base.registry import partitions
from fedquilt.base.rng import generator
from fedquilt.data.data import Data
from fedquilt.partition.dealing import (
    Labels,
    deal_by_class,
    even_sizes,
    require_classes,
    require_one_each,
    with_client_tests,
)
from fedquilt.partition.partition import Partition


@partitions.register
def stratified(
    labels: Labels, clients: Size, seed: Seed = 0, own_test: bool = False, data: Data | None = None
) -> Partition:
    """Deal out every class evenly (Ozdayi 2020).

    Every example belongs to one client. Where a class cannot be divided evenly, its counts differ by at most one, and so do
    the sizes: dealing goes on where the class before it ended. With `own_test`, the test set of `data` is dealt out too.

    >>> import numpy as np
    >>> labels = np.repeat([0, 1], [6, 4])
    >>> stratified(labels, clients=2).class_counts(labels, classes=2).tolist()
    [[3, 2], [3, 2]]
    """
    require_classes(labels)
    require_one_each(labels, clients)
    held = Partition.by_sizes(
        deal_by_class(labels, clients, generator(seed, "partition stratified")), even_sizes(len(labels), clients)
    )
    return with_client_tests(held, labels, data, seed) if own_test else held
