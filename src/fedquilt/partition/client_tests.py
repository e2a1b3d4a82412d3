"""Per-client tests: test examples for every client, out of the test set.

McMahan et al. 2017, section 3: CIFAR's "50,000 training examples and 10,000 testing examples, which we partitioned into
100 clients each containing 500 training and 100 testing examples".

In general every class of the test set is dealt out in the proportion in which the clients hold it for training, so that a
client is tested on the classes it trains on: with T test and N training examples of a class, whoever holds n of the latter
gets n·T/N of the former. Fractions are rounded up for those who have got least of what is due to them so far. No test
example has two owners; those of a class that nobody holds have none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedquilt.base.errors import SpecError
from fedquilt.base.rng import generator
from fedquilt.base.types import Indices
from fedquilt.data.data import Data
from fedquilt.partition.labels import Labels
from fedquilt.partition.partition import Partition


def with_client_tests(
    held: Partition, labels: Labels, data: Data | None, seed: int, by_class: bool = True
) -> Partition:
    """Return the partition with the test set of `data` dealt out too; without `by_class`, by the clients' sizes alone."""
    if data is None:
        raise SpecError("own_test: divides the test set, so pass the data set too, as in iid(…, data=data)")
    if by_class:
        return replace(held, test=deal_tests(held, labels, data.test.y.numpy(), seed))
    train, test = (np.zeros(len(rows), dtype=np.int64) for rows in (labels, data.test))
    return replace(held, test=deal_tests(held, train, test, seed))


def deal_tests(held: Partition, labels: Labels, test_labels: Labels, seed: int) -> Partition:
    """Deal out every class of the test set in the proportion in which clients hold it.

    >>> held = Partition.of([[0, 1, 2, 3], [4, 5]])
    >>> deal_tests(held, np.array([0, 0, 0, 0, 0, 0]), np.array([0, 0, 0]), seed=0).sizes.tolist()
    [2, 1]
    """
    rng = generator(seed, "partition own tests")
    cells = held.class_cells(labels)
    by_label = np.argsort(cells.label, kind="stable")
    kinds, starts = np.unique(cells.label[by_label], return_index=True)
    due = np.zeros(len(held))
    owners, rows = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for kind, indices in zip(kinds, np.split(by_label, starts[1:]), strict=True):
        rows_of_kind = rng.permutation(np.flatnonzero(test_labels == kind))
        clients = cells.client[indices]
        quota = cells.examples[indices] * len(rows_of_kind) / np.count_nonzero(labels == kind)
        counts = _rounded(quota, due, clients, rng)
        owners.append(np.repeat(clients, counts))
        rows.append(rows_of_kind[: counts.sum()])
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    return Partition.by_sizes(np.concatenate(rows)[order], np.bincount(owner, minlength=len(held)))


def _rounded(quota: npt.NDArray[np.float64], due: npt.NDArray[np.float64], clients: Indices, rng: Any) -> Indices:
    """Round quotas, and note in `due` what clients have not got yet."""
    whole = np.floor(quota + 1e-9)
    part = np.maximum(quota - whole, 0.0)
    due[clients] += part
    fractional = np.flatnonzero(part > 1e-9)
    spare = min(round(float(quota.sum())) - int(whole.sum()), len(fractional))
    first = np.lexsort((rng.random(len(fractional)), -due[clients[fractional]]))[: max(spare, 0)]
    whole[fractional[first]] += 1
    due[clients[fractional[first]]] -= 1
    return whole.astype(np.int64)
