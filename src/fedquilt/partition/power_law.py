"""Clients whose sizes follow a power law, and who are alike otherwise.

Li et al. 2020, "Federated Optimization in Heterogeneous Networks", section 5.1: "the number of samples per device follows a
power law"; Wei et al. 2022, "Federated Learning for Non-IID Data: From Theory to Algorithm", section 5.1, after it. Neither
says which. Here the k-th largest client holds a share proportional to k^−a: Zipf's law of rank and size.
"""

from __future__ import annotations

from fedquilt.base.arguments import Count, NonNegative, Seed, Size
from fedquilt.base.registry import partitions
from fedquilt.base.rng import generator
from fedquilt.data.data import Data
from fedquilt.partition.dealing import Labels, power_law_sizes, require_one_each, with_client_tests
from fedquilt.partition.partition import Partition


@partitions.register
def power_law(
    labels: Labels,
    clients: Size,
    exponent: NonNegative = 1.0,
    least: Count = 1,
    seed: Seed = 0,
    own_test: bool = False,
    data: Data | None = None,
) -> Partition:
    """Shuffle the data and deal it out in sizes proportional to rank^−exponent (after Li 2020).

    Every example belongs to one client, and everybody gets `least` before the rest is divided; the largest client comes
    first. An exponent of 0 is `iid`, to within one example. With `own_test`, the test set of `data` is dealt out by the
    same sizes.

    >>> import numpy as np
    >>> power_law(np.zeros(110, dtype=np.int64), clients=4, least=10).sizes.tolist()
    [44, 27, 21, 18]
    """
    require_one_each(labels, clients)
    sizes = power_law_sizes(len(labels), clients, exponent, least)
    held = Partition.by_sizes(generator(seed, "partition power law").permutation(len(labels)), sizes)
    return with_client_tests(held, labels, data, seed, by_class=False) if own_test else held
