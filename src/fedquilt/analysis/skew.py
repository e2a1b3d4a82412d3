"""How clients differ in what they hold: classes, and numbers of examples.

Hsu et al. 2020, "Federated Visual Classification with Real-World Data Distribution", section 6.1: with q_i the class
distribution of client i, n_i its number of examples and p = Σ (n_i/n)·q_i the population's, non-identicalness is the
weighted mean Σ (n_i/n)·‖q_i − p‖₁, which the paper calls the earth mover's distance (EMD); it is between 0 and 2.

Everything is computed from the pairs of client and class that occur, so that a million clients take seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedquilt.base.rng import generator
from fedquilt.base.types import Floats, Indices
from fedquilt.partition.partition import ClassCounts, Partition


@dataclass(frozen=True, eq=False, repr=False)
class Skew:
    """What is measured of a population; one number per client, and 0 where a client holds nothing.

    `emd` is ‖q_i − p‖₁, `divergence` the Jensen–Shannon divergence of q_i and p in bits, `entropy` that of q_i in bits,
    `effective` the number of equally frequent classes that would have it, 2^entropy, and `held` the number of classes.
    `emd_by_chance` is what the weighted mean of `emd` would be if the same sizes were dealt out at random: clients with
    few examples look different even then. Where examples have no single class, all of these are empty.
    """

    sizes: Indices
    cells: ClassCounts
    emd: Floats
    divergence: Floats
    entropy: Floats
    effective: Floats
    held: Indices
    population: Floats
    emd_by_chance: float

    @property
    def has_classes(self) -> bool:
        """Whether examples have one class each."""
        return len(self.population) > 0

    def mean(self, values: Floats | Indices) -> float:
        """Return the mean over clients, weighted by their examples (Hsu 2020, §6.1)."""
        return float(values @ self.sizes / max(int(self.sizes.sum()), 1))

    def summary(self) -> dict[str, Any]:
        """Return the numbers for a table; class metrics are weighted means over clients."""
        occupied = self.sizes[self.sizes > 0]
        about: dict[str, Any] = {
            "clients": len(self.sizes),
            "examples": int(self.sizes.sum()),
            "clients_without_examples": int((self.sizes == 0).sum()),
            "size_least": int(self.sizes.min()),
            "size_median": float(np.median(self.sizes)),
            "size_most": int(self.sizes.max()),
            "size_most_to_median": largest_to_median(self.sizes),
            "size_gini": gini(self.sizes),
        }
        if self.has_classes and len(occupied):
            about |= {
                "classes": int((self.population > 0).sum()),
                "emd": self.mean(self.emd),
                "emd_by_chance": self.emd_by_chance,
                "jensen_shannon": self.mean(self.divergence),
                "classes_held": self.mean(self.held),
                "effective_classes": self.mean(self.effective),
                "label_entropy": self.mean(self.entropy),
            }
        return about


def skew(partition: Partition, labels: npt.NDArray[np.integer[Any]]) -> Skew:
    """Measure how clients differ in sizes and, where `labels` has one class per example, in classes.

    >>> found = skew(Partition.of([[0, 1], [2, 3]]), np.array([0, 0, 0, 1]))
    >>> found.population.tolist(), found.emd.tolist(), found.held.tolist()
    ([0.75, 0.25], [0.5, 0.5], [1, 2])
    >>> round(found.mean(found.entropy), 3), found.effective.tolist()
    (0.5, [1.0, 2.0])
    """
    sizes = partition.sizes
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer) or not len(partition.indices):
        none = np.zeros(0, dtype=np.int64)
        empty = np.zeros(len(sizes))
        cells = ClassCounts(none, none, none)
        return Skew(sizes, cells, empty, empty, empty, empty, sizes * 0, np.zeros(0), 0.0)
    cells = partition.class_cells(labels)
    kinds, kind = np.unique(cells.label, return_inverse=True)
    p = np.bincount(kind, weights=cells.examples, minlength=len(kinds)) / len(partition.indices)
    q, prior = cells.examples / sizes[cells.client], p[kind]

    def summed(values: Floats) -> Floats:
        return np.bincount(cells.client, weights=values, minlength=len(sizes)).astype(np.float64)

    # Of the classes that a client lacks, each adds p to the distance, and p/2 bits to the divergence.
    lacking = np.where(sizes > 0, 1 - summed(prior), 0.0).clip(min=0)
    emd = summed(np.abs(q - prior)) + lacking
    middle = (q + prior) / 2
    divergence = (summed(q * np.log2(q / middle) + prior * np.log2(prior / middle)) + lacking) / 2
    entropy = np.maximum(-summed(q * np.log2(q)), 0.0)
    effective = np.where(sizes > 0, 2.0**entropy, 0.0)
    held = np.bincount(cells.client, minlength=len(sizes))
    chance = _emd_by_chance(partition, labels, p, kinds)
    return Skew(sizes, cells, emd, divergence, entropy, effective, held, p, chance)


def _emd_by_chance(
    partition: Partition, labels: npt.NDArray[np.integer[Any]], p: Floats, kinds: npt.NDArray[np.integer[Any]]
) -> float:
    shuffled = generator(0, "skew by chance").permutation(partition.indices)
    cells = partition.holding(shuffled, partition.sizes).class_cells(labels)
    prior = p[np.searchsorted(kinds, cells.label)]
    # Σ_i n_i·‖q_i − p‖₁, by cells: |c − n·p| where a class is held, and n·p of all others.
    sizes = partition.sizes[cells.client]
    held = np.abs(cells.examples - sizes * prior).sum() - (sizes * prior).sum()
    return float((held + partition.sizes.sum()) / partition.sizes.sum())


def gini(sizes: Indices) -> float:
    """Return the Gini coefficient of sizes: 0 where all are equal, near 1 where one client holds everything.

    >>> gini(np.array([5, 5])), gini(np.array([0, 0, 0, 8])), round(gini(np.array([1, 2, 3])), 4)
    (0.0, 0.75, 0.2222)
    """
    rising = np.sort(sizes).astype(np.float64)
    total, count = rising.sum(), len(rising)
    return float(2 * (np.arange(1, count + 1) @ rising) / (count * total) - (count + 1) / count) if total else 0.0


def largest_to_median(sizes: Indices) -> float:
    """Return how many times the median client the largest is; infinite where the median client holds nothing.

    >>> largest_to_median(np.array([2, 2, 2, 9]))
    4.5
    """
    middle = float(np.median(sizes))
    return float(sizes.max()) / middle if middle else float("inf")
