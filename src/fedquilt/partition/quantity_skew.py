"""Clients whose shares of the data are drawn from a Dirichlet distribution, and who are alike otherwise.

Li et al. 2022, "Federated Learning on Non-IID Data Silos: An Experimental Study" (NIID-Bench), quantity skew: q ~ Dir_N(β),
and client j gets a share q_j of all examples. The authors draw again until everybody holds 10; here everybody is given
`least` first and the rest is divided, so that nothing is drawn twice.
"""

from __future__ import annotations

import numpy as np

from fedquilt.base.arguments import Count, Positive, Seed, Size
from fedquilt.base.registry import partitions
from fedquilt.base.rng import generator
from fedquilt.data.data import Data
from fedquilt.partition.dealing import Labels, log_dirichlet, require_one_each, shares, sizes_by, with_client_tests
from fedquilt.partition.partition import Partition


@partitions.register
def quantity_skew(
    labels: Labels,
    clients: Size,
    beta: Positive = 0.5,
    least: Count = 1,
    seed: Seed = 0,
    own_test: bool = False,
    data: Data | None = None,
) -> Partition:
    """Shuffle the data and deal it out in shares drawn from Dir(β, …, β) (Li 2022, NIID-Bench).

    Every example belongs to one client. The smaller `beta`, the more some clients hold; everybody gets `least` before the
    rest is divided. With `own_test`, the test set of `data` is dealt out by the same sizes.

    >>> held = quantity_skew(np.zeros(1000, dtype=np.int64), clients=10, least=5)
    >>> int(held.sizes.sum()), bool(held.sizes.min() >= 5)
    (1000, True)
    """
    require_one_each(labels, clients)
    rng = generator(seed, "partition quantity skew")
    q = shares(log_dirichlet(1, np.full(clients, 1 / clients), beta * clients, rng)[0])
    held = Partition.by_sizes(rng.permutation(len(labels)), sizes_by(q, len(labels), least))
    return with_client_tests(held, labels, data, seed, by_class=False) if own_test else held
