"""Classes whose shares over clients are drawn from a Dirichlet distribution.

Yurochkin et al. 2019, "Bayesian Nonparametric Federated Learning of Neural Networks", section 4: for every class k,
p_k ~ Dir_J(0.5) over the J clients, and "allocate a p_k,j proportion of the instances of class k" to client j. Not to be
mistaken for `dirichlet` (Hsu 2019), which draws a class distribution for every client: here sizes differ too, and some
clients may be left with nothing. The authors' code draws again until every client holds at least 10 examples; so does
`least`, which changes the law that the shares have.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from fedquilt.base.arguments import Positive, Seed, Size
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import partitions
from fedquilt.base.rng import generator
from fedquilt.base.types import Indices
from fedquilt.data.data import Data
from fedquilt.partition.dealing import Labels, log_dirichlet, require_classes, shares, with_client_tests
from fedquilt.partition.partition import Partition

REDRAWS = 100
"""Populations drawn before giving up."""


@partitions.register
def dirichlet_per_class(
    labels: Labels,
    clients: Size,
    alpha: Positive = 0.5,
    *,
    least: Annotated[int, Field(ge=0)] = 1,
    seed: Seed = 0,
    own_test: bool = False,
    data: Data | None = None,
) -> Partition:
    """Divide every class over the clients by shares drawn from Dir(α, …, α) (Yurochkin 2019).

    Every example belongs to one client. A population in which a client holds fewer than `least` examples is drawn anew, at
    most 100 times. With `own_test`, the test set of `data` is dealt out too.

    >>> held = dirichlet_per_class(np.repeat(np.arange(10), 100), clients=10, alpha=0.5)
    >>> int(held.sizes.sum()), bool(held.sizes.min() >= 1), len(np.unique(held.indices))
    (1000, True, 1000)
    """
    require_classes(labels)
    if clients * least > len(labels):
        raise SpecError(
            f"least: {clients} clients × {least} = {clients * least}, but there are {len(labels)} examples; at most "
            f"{len(labels) // clients} per client"
        )
    _, kind, available = np.unique(labels, return_inverse=True, return_counts=True)
    rng = generator(seed, "partition dirichlet per class")
    most = 0
    for _ in range(REDRAWS):
        owner = _owners(available, clients, alpha, rng)
        sizes = np.bincount(owner, minlength=clients)
        most = max(most, int(sizes.min()))
        if sizes.min() >= least:
            shuffled = rng.permutation(len(labels))
            by_class = shuffled[np.argsort(kind[shuffled], kind="stable")]
            held = Partition.by_sizes(by_class[np.argsort(owner, kind="stable")], sizes)
            return with_client_tests(held, labels, data, seed) if own_test else held
    raise SpecError(
        f"least: in {REDRAWS} draws some client always held fewer than {least} examples (at best the smallest held "
        f"{most}); use a larger alpha, fewer clients, or a smaller least (0 allows clients without examples)"
    )


def _owners(available: Indices, clients: int, alpha: float, rng: np.random.Generator) -> Indices:
    """Draw the owner of every example, class after class."""
    uniform = np.full(clients, 1 / clients)
    owners = []
    for count in available.tolist():
        cuts = np.cumsum(shares(log_dirichlet(1, uniform, alpha * clients, rng)[0])) * count
        ends = np.minimum(np.rint(cuts).astype(np.int64), count)
        ends[-1] = count
        owners.append(np.repeat(np.arange(clients), np.diff(ends, prepend=0)))
    return np.concatenate(owners)
