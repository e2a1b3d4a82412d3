"""What several partitions share: labels, sizes of clients, Dirichlet draws, and per-client tests.

Dirichlet draws are logarithms, which keep what underflows where the concentration is small.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import PlainValidator
from pydantic_core import PydanticCustomError
from torch import Tensor

from fedquilt.base.errors import SpecError
from fedquilt.base.rng import generator
from fedquilt.base.types import Floats, Indices
from fedquilt.data.data import Data
from fedquilt.partition.partition import Partition


def even_sizes(total: int, parts: int) -> Indices:
    """Divide a total into whole parts that differ by at most one, the larger ones first.

    >>> even_sizes(11, 4).tolist()
    [3, 3, 3, 2]
    """
    sizes = np.full(parts, total // parts, dtype=np.int64)
    sizes[: total % parts] += 1
    return sizes


def sizes_by(shares: npt.NDArray[np.float64], total: int, least: int) -> Indices:
    """Divide a total by shares that sum to 1, after everybody has got `least`; largest remainders are rounded up.

    >>> sizes_by(np.array([0.7, 0.2, 0.1]), total=10, least=1).tolist()
    [6, 2, 2]
    """
    free = total - least * len(shares)
    if free < 0:
        raise SpecError(
            f"least: {len(shares)} clients × {least} = {least * len(shares)}, but there are {total} examples; "
            f"at most {total // len(shares)} per client"
        )
    quota = shares * free
    sizes = np.floor(quota).astype(np.int64)
    up = np.argsort(sizes - quota, kind="stable")[: free - int(sizes.sum())]
    sizes[up] += 1
    return sizes + least


def power_law_sizes(total: int, parts: int, exponent: float, least: int = 1) -> Indices:
    """Divide a total so that the k-th largest part is proportional to k^−exponent, the largest first.

    >>> power_law_sizes(110, 4, exponent=1.0, least=10).tolist()
    [44, 27, 21, 18]
    """
    ranks = np.arange(1, parts + 1, dtype=np.float64) ** -exponent
    return sizes_by(ranks / ranks.sum(), total, least)


def log_dirichlet(count: int, p: Floats, alpha: float, rng: np.random.Generator) -> Floats:
    """Draw the logarithms of `count` vectors of Dir(α·p), each up to a constant; α may be 0 and infinite.

    log Gamma(a) = log Gamma(a + 1) + log(U)/a gives them. For α → 0 the terms log(U)/(α·p) decide alone.

    >>> draws = log_dirichlet(2, np.array([0.5, 0.5]), 1e-300, np.random.default_rng(0))
    >>> bool(np.isfinite(draws).all())
    True
    """
    if alpha == np.inf:
        return np.broadcast_to(np.log(p), (count, len(p)))
    race = -rng.standard_exponential((count, len(p))) / p
    if alpha < _ZERO:
        return race / _ZERO
    return np.log(rng.standard_gamma(1 + alpha * p, race.shape)) + race / alpha


def shares(log_q: Floats) -> Floats:
    """Turn logarithms, known up to a constant, into shares that sum to 1.

    >>> shares(np.array([-1e300, -2e300])).tolist()
    [1.0, 0.0]
    """
    q: Floats = np.exp(log_q - log_q.max())
    return q / float(q.sum())


def deal_by_class(labels: Labels, clients: int, rng: np.random.Generator) -> Indices:
    """Shuffle every class and deal it out, one example at a time; return the positions client by client.

    >>> deal_by_class(np.array([0, 0, 1, 1]), 2, np.random.default_rng(0)).reshape(2, 2).tolist()
    [[0, 2], [1, 3]]
    """
    shuffled = rng.permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    turn = np.arange(len(labels)) % clients
    return by_class[np.argsort(turn, kind="stable")]


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
    """Deal out every class of the test set in the proportion in which clients hold it for training.

    McMahan et al. 2017, section 3: CIFAR's "50,000 training examples and 10,000 testing examples, which we partitioned into
    100 clients each containing 500 training and 100 testing examples". In general a client is tested on the classes it
    trains on: with T test and N training examples of a class, whoever holds n of the latter gets n·T/N of the former.
    Fractions are rounded up for those who have got least of what is due to them so far. No test example has two owners;
    those of a class that nobody holds have none.

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


# Below this, log(U)/(α·p) may leave the range of floating point; no draw can tell such an α from 0.
_ZERO = 1e-250


def _labels(value: object) -> npt.NDArray[np.integer[Any]]:
    if isinstance(value, Tensor):
        value = value.numpy()
    if isinstance(value, np.ndarray) and value.ndim >= 1 and value.dtype.kind in "iuf":
        return value
    raise PydanticCustomError("plain", "must be a NumPy array of numbers, with one row per example")


Labels = Annotated[npt.NDArray[np.integer[Any]], PlainValidator(_labels)]
"""One row per example: its class, the targets of a sequence, or numbers. The array is passed on as it is, never copied."""


def require_classes(labels: npt.NDArray[np.integer[Any]]) -> None:
    """Raise a SpecError if examples have no single class, or there are none.

    >>> require_classes(np.zeros((3, 80), dtype=np.int64))
    Traceback (most recent call last):
    fedquilt.base.errors.SpecError: needs one class per example, but the labels of this data set have the shape (3, 80)
    """
    if not np.issubdtype(labels.dtype, np.integer):
        raise SpecError("needs one class per example, but this data set has numerical targets")
    if labels.ndim != 1:
        raise SpecError(f"needs one class per example, but the labels of this data set have the shape {labels.shape}")
    if not len(labels):
        raise SpecError("needs one class per example, but there are no examples")


def require_one_each(labels: npt.NDArray[np.integer[Any]], clients: int) -> None:
    """Raise a SpecError if there are fewer examples than clients.

    >>> require_one_each(np.zeros(3, dtype=np.int64), clients=4)
    Traceback (most recent call last):
    fedquilt.base.errors.SpecError: clients: 4 clients cannot each hold an example of 3; at most 3 clients
    """
    if clients > len(labels):
        raise SpecError(
            f"clients: {clients} clients cannot each hold an example of {len(labels)}; at most {len(labels)} clients"
        )
