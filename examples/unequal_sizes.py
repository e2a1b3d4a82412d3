"""A partition of your own: clients that differ in size as well as in their classes.

Name `unequal_sizes:unequal` in a spec's [partition], with this file beside the spec, or run it to see the sizes.
"""

from __future__ import annotations

import numpy as np

import fedquilt as fq
from fedquilt.base.arguments import Count, NonNegative, Positive, Seed


def unequal(labels, clients: Count, alpha: Positive = 1.0, spread: NonNegative = 1.0, seed: Seed = 0) -> fq.Partition:
    """Deal out all examples: sizes in proportion to exp(spread·N(0, 1)), classes drawn from Dir(alpha·p), p uniform."""
    rng = np.random.default_rng(seed)
    kinds, classes = np.unique(labels, return_inverse=True)
    left = [list(rng.permutation(np.flatnonzero(classes == kind))) for kind in range(len(kinds))]
    shares = np.exp(spread * rng.standard_normal(clients))
    sizes = 1 + rng.multinomial(len(labels) - clients, shares / shares.sum())
    held = []
    for size in sizes:
        q = (
            rng.dirichlet(np.full(len(kinds), alpha / len(kinds))) + 1e-12
        )  # where its classes run out, any other serves
        rows = []
        while len(rows) < size:
            there = q * [bool(rest) for rest in left]
            rows.append(left[rng.choice(len(kinds), p=there / there.sum())].pop())
        held.append(rows)
    return fq.Partition.of(held)


if __name__ == "__main__":
    sizes = unequal(fq.digits().train.y.numpy(), clients=20, spread=1.5, seed=1).sizes
    print("clients from", sizes.min(), "to", sizes.max(), "examples")
