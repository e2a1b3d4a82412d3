import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedquilt.base.errors import SpecError
from fedquilt.partition import shards


def test_mcmahans_mnist_population() -> None:
    """100 clients of 600 examples, two shards of 300 each: most hold two digits."""
    labels = np.random.default_rng(0).integers(0, 10, 60_000)
    held = shards(labels, clients=100, shards=2)
    assert (held.sizes == 600).all()
    kinds = (held.class_counts(labels, 10) > 0).sum(axis=1)
    # With classes that are no multiple of 300, a shard may hold the end of one and the beginning of the next.
    assert kinds.max() <= 4
    assert np.mean(kinds <= 2) > 0.8


def test_whole_classes() -> None:
    labels = np.tile(np.arange(10), 60)
    held = shards(labels, clients=10, shards=2)
    assert (held.class_counts(labels, 10) > 0).sum(axis=1).max() <= 2


def test_order_within_a_label_is_the_datas() -> None:
    labels = np.array([1, 0, 1, 0, 1, 0])
    held = shards(labels, clients=2, shards=1)
    assert sorted(held.client(k).tolist() for k in range(2)) == [[0, 2, 4], [1, 3, 5]]


@settings(max_examples=100, deadline=None)
@given(n=st.integers(1, 200), clients=st.integers(1, 20), count=st.integers(1, 5), seed=st.integers(0, 99))
def test_shards_are_runs_of_the_sorted_data(n: int, clients: int, count: int, seed: int) -> None:
    if clients * count > n:
        with pytest.raises(SpecError, match="cannot be cut from"):
            shards(np.zeros(n, dtype=np.int64), clients=clients, shards=count)
        return
    labels = np.sort(np.random.default_rng(seed).integers(0, 4, n))
    held = shards(labels, clients=clients, shards=count, seed=seed)
    assert np.array_equal(np.sort(held.indices), np.arange(n))
    least = n // (clients * count)
    assert held.sizes.min() >= count * least
    assert held.sizes.max() <= count * (least + 1)
    # Sorted labels are their own order, so that a client's positions are at most `count` runs of consecutive numbers.
    for k in range(clients):
        assert np.count_nonzero(np.diff(held.client(k)) != 1) <= count - 1
