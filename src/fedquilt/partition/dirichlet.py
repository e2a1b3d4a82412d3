"""Clients whose class distributions are drawn from a Dirichlet distribution.

Hsu, Qi and Brown 2019, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification",
section 3, and 2020, "Federated Visual Classification with Real-World Data Distribution", appendix B.1:

- Client k draws q_k ~ Dir(α·p), where p is a distribution: with ten uniform classes, α = 1 means Dir(0.1, …, 0.1).
- It then draws its examples' classes from q_k, without replacement over all clients.
- Where a set S of classes has run out, it draws from q_k(y) / (1 − Σ_{s∈S} q_k(s)) for y ∉ S (2020, equation 5).

How it is computed:

- A client's counts are drawn at once, from the multinomial, and cut down to what is left of each class; what that
  leaves open is drawn again by equation 5. This has the same law as drawing one example after another: drawing by
  equation 5 is drawing from q_k and rejecting classes that have run out, and among m such draws a class with r examples
  left accepts the first r and rejects the others, in whatever order they come.
- q_k is kept as logarithms, since for small α nearly all of it underflows. Equation 5 would then be 0/0 for a client
  whose whole visible mass lies on exhausted classes. In logarithms it stays exact, and amounts to a fresh draw from
  Dir(α·p) over the classes that remain: renormalised parts of a Dirichlet vector are Dirichlet again.
- log Gamma(a) = log Gamma(a + 1) + log(U)/a gives the logarithms. For α → 0 the terms log(U)/(α·p) decide alone: the
  largest of them is class y with probability p(y), and among the classes that remain, with p renormalised over them.
  This order is the case α = 0: one class at random from the prior and, when it runs out, another of those that remain.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedquilt.base.arguments import Count, NonNegative, Seed, Size
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import partitions
from fedquilt.base.rng import generator
from fedquilt.base.types import Floats, Indices
from fedquilt.data.data import Data
from fedquilt.partition.dealing import (
    Labels,
    even_sizes,
    log_dirichlet,
    power_law_sizes,
    require_classes,
    require_one_each,
    shares,
    with_client_tests,
)
from fedquilt.partition.partition import Partition

Concentration = Annotated[float, Field(ge=0)]
"""0 gives one class per client, `inf` the prior itself."""

_BLOCK = 256


@partitions.register
def dirichlet(
    labels: Labels,
    clients: Size,
    alpha: Concentration,
    *,
    prior: Literal["uniform", "empirical"] = "uniform",
    examples: Count | None = None,
    exponent: NonNegative = 0.0,
    seed: Seed = 0,
    own_test: bool = False,
    data: Data | None = None,
) -> Partition:
    """Draw each client's class distribution from Dir(α·p) and its examples without replacement (Hsu 2019, 2020).

    `prior` is p: uniform over the classes that occur (Hsu 2019), or their frequencies. Each client holds `examples`,
    and what is left over belongs to nobody; without `examples`, every example belongs to one client and sizes differ
    by at most one; with an `exponent`, the k-th largest client's size is proportional to k^−exponent, as in `power_law`.
    Clients draw in order, so that it is the last ones for whom classes have run out. With `own_test`, the test set of
    `data` is dealt out too.

    >>> labels = np.repeat(np.arange(10), 100)
    >>> held = dirichlet(labels, clients=10, alpha=0.0)
    >>> held.class_counts(labels, classes=10).max(axis=1).tolist()
    [100, 100, 100, 100, 100, 100, 100, 100, 100, 100]
    >>> dirichlet(labels, clients=3, alpha=1.0, exponent=1.0).sizes.tolist()
    [545, 273, 182]
    """
    sizes = _sizes(labels, clients, examples, exponent)
    _, kinds, available = np.unique(labels, return_inverse=True, return_counts=True)
    p = available / len(labels) if prior == "empirical" else np.full(len(available), 1 / len(available))
    rng = generator(seed, "partition dirichlet")
    # Shuffled, then sorted by class: the next example of a class is one at random.
    shuffled = rng.permutation(len(labels))
    pool = shuffled[np.argsort(kinds[shuffled], kind="stable")]
    drawn = _draw_classes(sizes, available, p, alpha, rng)
    held = Partition.by_sizes(_take(pool, available, drawn), sizes)
    return with_client_tests(held, labels, data, seed) if own_test else held


def _sizes(labels: npt.NDArray[np.integer], clients: int, examples: int | None, exponent: float) -> Indices:
    require_classes(labels)
    require_one_each(labels, clients)
    if examples is not None and exponent:
        raise SpecError(f"exponent: clients of {examples} examples each are all of one size; set only one of the two")
    if exponent:
        return power_law_sizes(len(labels), clients, exponent)
    if examples is None:
        return even_sizes(len(labels), clients)
    if clients * examples > len(labels):
        raise SpecError(
            f"examples: {clients} clients × {examples} examples = {clients * examples}, but there are {len(labels)}; "
            f"at most {len(labels) // clients} per client"
        )
    return np.full(clients, examples, dtype=np.int64)


def _draw_classes(sizes: Indices, available: Indices, p: Floats, alpha: float, rng: np.random.Generator) -> Indices:
    """Draw the class of every position, client after client."""
    left = available.copy()
    counts = []
    for start in range(0, len(sizes), _BLOCK):
        block = sizes[start : start + _BLOCK]
        # Logarithms of q, a block of clients at a time: quick, and small in memory for thousands of classes.
        for log_q, size in zip(log_dirichlet(len(block), p, alpha, rng), block, strict=True):
            counts.append(_draw_counts(int(size), log_q, left, rng))
    held = np.concatenate(counts)
    return np.repeat(held[:, 0], held[:, 1])


def _draw_counts(size: int, log_q: Floats, left: Indices, rng: np.random.Generator) -> Indices:
    """Draw one client's pairs of class and count, and take them away from what is left."""
    taken = np.zeros_like(left)
    while size:
        remaining = np.where(left > 0, log_q, -np.inf)
        drawn = np.minimum(rng.multinomial(size, shares(remaining)), left)
        taken += drawn
        left -= drawn
        size -= int(drawn.sum())
    classes = np.flatnonzero(taken)
    return np.stack([classes, taken[classes]], axis=1)


def _take(pool: Indices, available: Indices, drawn: Indices) -> Indices:
    """Fill every position with the next example of its class."""
    used = np.bincount(drawn, minlength=len(available))
    starts = np.cumsum(available) - available
    first = np.cumsum(used) - used
    next_examples = pool[np.arange(len(drawn)) + np.repeat(starts - first, used)]
    indices = np.empty(len(drawn), dtype=np.int64)
    indices[np.argsort(drawn, kind="stable")] = next_examples
    return indices
