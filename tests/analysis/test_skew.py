"""Measures of skew: by hand, by their bounds, and against slow and plain formulas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.spatial import distance

import fedquilt
from fedquilt.analysis.skew import gini, largest_to_median, skew
from fedquilt.partition import Partition

TEN = np.repeat(np.arange(10), 100)


def test_by_hand() -> None:
    """With p = (1/2, 1/4, 1/4): client 0 holds only class 0, client 1 half each of the others, client 2 nothing."""
    labels = np.array([0, 0, 1, 2])
    found = skew(Partition.of([[0, 1], [2, 3], []]), labels)
    assert found.population.tolist() == [0.5, 0.25, 0.25]
    assert found.emd.tolist() == [1.0, 1.0, 0.0]
    # JS of (1, 0, 0) and p: ½·log2(1/0.75) + ½·(½·log2(0.5/0.75) + ½·1).
    first = 0.5 * np.log2(4 / 3) + 0.5 * (0.5 * np.log2(2 / 3) + 0.5)
    assert found.divergence[0] == pytest.approx(first)
    assert found.entropy.tolist() == [0.0, 1.0, 0.0]
    assert found.effective.tolist() == [1.0, 2.0, 0.0]
    assert found.held.tolist() == [1, 2, 0]
    assert found.summary()["clients_without_examples"] == 1


def test_means_are_weighted_by_examples() -> None:
    """Three examples with a distance of 0.5 and one with 1.5: 0.75, as Hsu 2020 weighs, and not 1."""
    found = skew(Partition.of([[0, 1, 2], [3]]), np.array([0, 0, 0, 1]))
    assert found.emd.tolist() == [0.5, 1.5]
    assert found.mean(found.emd) == 0.75


def test_one_class_a_client_is_the_largest_distance() -> None:
    """‖e − 1/C‖₁ = 2·(1 − 1/C): 1.8 with ten classes."""
    found = skew(fedquilt.class_blocks(TEN, clients=10, classes=1), TEN)
    assert found.emd == pytest.approx(np.full(10, 1.8))
    assert found.effective == pytest.approx(np.ones(10))


def test_clients_that_are_alike() -> None:
    about = skew(fedquilt.stratified(TEN, clients=10), TEN).summary()
    assert about["emd"] == pytest.approx(0, abs=1e-12)
    assert about["jensen_shannon"] == pytest.approx(0, abs=1e-12)
    assert about["effective_classes"] == pytest.approx(10)
    assert about["label_entropy"] == pytest.approx(np.log2(10))
    assert about["size_gini"] == 0.0
    assert about["emd_by_chance"] > 0.1


def test_dealt_at_random_is_what_chance_gives() -> None:
    """The mean over 1,000 clients of 20 examples: two draws of one thing, to within 3%."""
    labels = np.arange(20_000) % 7
    about = skew(fedquilt.iid(labels, clients=1000), labels).summary()
    assert about["emd"] == pytest.approx(about["emd_by_chance"], rel=0.03)


@settings(max_examples=80, deadline=None)
@given(
    labels=st.lists(st.integers(-2, 5), min_size=1, max_size=60),
    clients=st.integers(1, 8),
    seed=st.integers(0, 1000),
)
def test_as_plain_formulas_say(labels: list[int], clients: int, seed: int) -> None:
    y, rng = np.array(labels), np.random.default_rng(seed)
    held = Partition.by_sizes(rng.permutation(len(y)), rng.multinomial(len(y), np.full(clients, 1 / clients)))
    found = skew(held, y)
    kinds = np.unique(y)
    p = np.array([(y == kind).mean() for kind in kinds])
    for k in range(clients):
        own = y[held.client(k)]
        if not len(own):
            assert found.emd[k] == found.divergence[k] == found.effective[k] == 0
            continue
        q = np.array([(own == kind).mean() for kind in kinds])
        assert found.emd[k] == pytest.approx(np.abs(q - p).sum())
        assert found.divergence[k] == pytest.approx(distance.jensenshannon(q, p, base=2) ** 2, abs=1e-9)
        assert found.entropy[k] == pytest.approx(stats.entropy(q, base=2))
        assert found.held[k] == len(np.unique(own))
    assert (found.emd <= 2 + 1e-12).all()
    assert found.divergence.min() >= -1e-12
    assert found.divergence.max() <= 1 + 1e-12


@pytest.mark.parametrize(
    ("sizes", "value"), [([1, 1, 1], 0.0), ([1, 3], 0.25), ([0, 10], 0.5), ([0, 0], 0.0), ([7], 0.0)]
)
def test_gini_by_hand(sizes: list[int], value: float) -> None:
    assert gini(np.array(sizes)) == pytest.approx(value)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20).filter(any))
def test_gini_is_the_mean_difference(sizes: list[int]) -> None:
    """Σ|n_i − n_j| / (2·K²·mean), the definition."""
    n = np.array(sizes, dtype=float)
    assert gini(n.astype(int)) == pytest.approx(np.abs(n[:, None] - n).sum() / (2 * len(n) ** 2 * n.mean()))


def test_a_median_of_nothing() -> None:
    assert largest_to_median(np.array([0, 0, 4])) == float("inf")


def test_sequences_have_sizes_only() -> None:
    found = skew(Partition.of([[0, 1], [2]]), np.zeros((3, 5), dtype=np.int64))
    assert not found.has_classes
    assert "emd" not in found.summary()
    assert found.summary()["size_most"] == 2


def test_a_million_clients_without_a_table_of_classes() -> None:
    labels = np.random.default_rng(0).integers(0, 2000, 2_000_000)
    about = skew(fedquilt.iid(labels, clients=1_000_000), labels).summary()
    # Two examples of 2,000 classes: nearly always two classes, each of them half: 2·(1 − 2/2000).
    assert about["emd"] == pytest.approx(2 * (1 - 2 / 2000), abs=0.001)


def test_targets_that_are_numbers_have_no_classes() -> None:
    found = skew(Partition.of([[0, 1], [2]]), np.array([0.5, 1.5, 2.5]))
    assert found.sizes.tolist() == [2, 1]
    assert len(found.population) == 0
