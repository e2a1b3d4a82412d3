"""The pathological non-IID partition: sort by label, cut into shards, deal each client some of them.

McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data", section 3.
Within a label the examples keep the data set's order, because the paper only sorts. The shards are therefore the same
for every seed, and the seed decides who gets which.
"""

from __future__ import annotations

import numpy as np

from fedquilt.base.arguments import Seed, Size
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import partitions
from fedquilt.base.rng import generator
from fedquilt.data.data import Data
from fedquilt.partition.dealing import Labels, even_sizes, require_classes, with_client_tests
from fedquilt.partition.partition import Partition


@partitions.register
def shards(
    labels: Labels,
    clients: Size,
    shards: Size = 2,
    seed: Seed = 0,
    own_test: bool = False,
    data: Data | None = None,
) -> Partition:
    """Sort by label, cut into even shards, and deal each client some at random (McMahan 2017).

    Every example belongs to one client; the sizes of shards differ by at most one. With `own_test`, the test set of
    `data` is dealt out too.

    >>> labels = np.array([1, 0, 1, 0, 2, 2, 3, 3])
    >>> held = shards(labels, clients=2)
    >>> sorted(labels[held.client(0)].tolist() + labels[held.client(1)].tolist()), held.sizes.tolist()
    ([0, 0, 1, 1, 2, 2, 3, 3], [4, 4])
    """
    require_classes(labels)
    count = clients * shards
    if count > len(labels):
        raise SpecError(
            f"shards: {clients} clients × {shards} shards = {count} shards cannot be cut from {len(labels)} examples; "
            f"at most {len(labels)} shards in all"
        )
    by_label = np.argsort(labels, kind="stable")
    sizes = even_sizes(len(labels), count)
    starts = np.cumsum(sizes) - sizes
    dealt = generator(seed, "partition shards").permutation(count)
    # Position i of the result lies `i - first[s]` positions into its shard s.
    dealt_sizes = sizes[dealt]
    first = np.cumsum(dealt_sizes) - dealt_sizes
    indices = np.arange(len(labels)) + np.repeat(starts[dealt] - first, dealt_sizes)
    held = Partition.by_sizes(by_label[indices], dealt_sizes.reshape(clients, shards).sum(axis=1))
    return with_client_tests(held, labels, data, seed) if own_test else held
