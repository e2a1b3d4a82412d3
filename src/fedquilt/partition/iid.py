"""The IID partition: "the data is shuffled, and then partitioned".

McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data", section 3.
"""

from __future__ import annotations

from fedquilt.base.arguments import Seed, Size
from fedquilt.base.registry import partitions
from fedquilt.base.rng import generator
from fedquilt.data.data import Data
from fedquilt.partition.dealing import Labels, even_sizes, require_one_each, with_client_tests
from fedquilt.partition.partition import Partition


@partitions.register
def iid(labels: Labels, clients: Size, seed: Seed = 0, own_test: bool = False, data: Data | None = None) -> Partition:
    """Shuffle the data and deal it out evenly (McMahan 2017).

    Every example belongs to one client; sizes differ by at most one. With `own_test`, the test set of `data` is dealt out
    too: McMahan's CIFAR clients, with 500 examples to train and 100 to test.

    >>> import numpy as np
    >>> held = iid(np.zeros(10, dtype=np.int64), clients=3)
    >>> held.sizes.tolist(), sorted(held.indices.tolist())
    ([4, 3, 3], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    require_one_each(labels, clients)
    order = generator(seed, "partition iid").permutation(len(labels))
    held = Partition.by_sizes(order, even_sizes(len(labels), clients))
    return with_client_tests(held, labels, data, seed, by_class=False) if own_test else held
