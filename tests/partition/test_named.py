"""What each partition promises by name: closed forms and hand values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedquilt.base.arguments import ArgumentError
from fedquilt.base.errors import SpecError
from fedquilt.partition import class_blocks, dirichlet_per_class, feature_skew, power_law, quantity_skew, stratified

TEN = np.repeat(np.arange(10), 100)


def test_stratified_gives_everybody_the_same_number_of_every_class() -> None:
    assert (stratified(TEN, clients=2).class_counts(TEN, 10) == 50).all()


@settings(max_examples=60, deadline=None)
@given(counts=st.lists(st.integers(0, 20), min_size=1, max_size=6).filter(any), clients=st.integers(1, 12))
def test_stratified_is_even_within_every_class(counts: list[int], clients: int) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    if clients > len(labels):
        return
    table = stratified(labels, clients).class_counts(labels, len(counts))
    assert np.ptp(table, axis=0).max() <= 1
    assert np.ptp(table.sum(axis=1)) <= 1


def test_two_clients_of_five_classes_each_are_ozdayis() -> None:
    counts = class_blocks(TEN, clients=2, classes=5).class_counts(TEN, 10)
    assert counts.tolist() == [[100] * 5 + [0] * 5, [0] * 5 + [100] * 5]


def test_clients_share_blocks_evenly_in_order() -> None:
    # Ten classes in blocks of four: 4, 4 and 2 classes; seven clients: three share the first, two the others.
    counts = class_blocks(TEN, clients=7, classes=4).class_counts(TEN, 10)
    assert [np.flatnonzero(row).tolist() for row in counts] == [
        *[[0, 1, 2, 3]] * 3,
        *[[4, 5, 6, 7]] * 2,
        *[[8, 9]] * 2,
    ]
    assert set(counts[:3, :4].ravel()) == {33, 34}
    assert (counts[3:5, 4:8] == 50).all()


def test_blocks_need_clients_and_examples() -> None:
    with pytest.raises(SpecError, match=r"10 classes make 5 blocks of 2, too many for 4 clients; .* classes = 3"):
        class_blocks(TEN, clients=4, classes=2)
    with pytest.raises(SpecError, match="cannot share the 100 examples"):
        class_blocks(TEN, clients=1010, classes=1)


@pytest.mark.parametrize("alpha", [0.3, 3.0])
def test_shares_of_a_class_are_beta(alpha: float) -> None:
    """A client's share of Dir(α, …, α) over K is Beta(α, (K − 1)·α): the second moment, to five standard errors."""
    labels, clients = np.zeros(10_000, dtype=np.int64), 4
    law = stats.beta(alpha, (clients - 1) * alpha)
    found = np.array(
        [dirichlet_per_class(labels, clients, alpha, least=0, seed=seed).sizes[0] / 10_000 for seed in range(600)]
    )
    error = np.sqrt((law.moment(4) - law.moment(2) ** 2) / 600)
    assert np.mean(found**2) == pytest.approx(law.moment(2), abs=5 * error)


def test_too_few_examples_are_drawn_again_and_then_refused() -> None:
    assert dirichlet_per_class(TEN, clients=10, alpha=0.5, least=10, seed=3).sizes.min() >= 10
    with pytest.raises(SpecError, match=r"least: in 100 draws .* fewer than 20 .* larger alpha, fewer clients"):
        dirichlet_per_class(TEN, clients=50, alpha=0.01, least=20)
    with pytest.raises(SpecError, match=r"least: 10 clients × 101 = 1010, but there are 1000 examples; at most 100"):
        dirichlet_per_class(TEN, clients=10, alpha=0.5, least=101)


def test_power_law_sizes_by_hand() -> None:
    # 1 + 1/4 + 1/9 = 49/36: one each, and of the other 490 examples 360, 90 and 40.
    assert power_law(np.zeros(493, dtype=int), clients=3, exponent=2.0).sizes.tolist() == [361, 91, 41]
    with pytest.raises(SpecError, match=r"least: 3 clients × 4 = 12, but there are 10 examples; at most 3"):
        power_law(np.zeros(10, dtype=int), clients=3, least=4)


def test_quantity_skew_is_dirichlet() -> None:
    """The share of one of K clients is Beta(β, (K − 1)·β): mean 1/K and second moment, to five standard errors."""
    labels, law = np.zeros(10_000, dtype=np.int64), stats.beta(0.5, 1.5)
    found = np.array([(quantity_skew(labels, 4, beta=0.5, seed=seed).sizes[0] - 1) / 9_996 for seed in range(600)])
    assert found.mean() == pytest.approx(0.25, abs=5 * law.std() / np.sqrt(600))
    error = np.sqrt((law.moment(4) - law.moment(2) ** 2) / 600)
    assert np.mean(found**2) == pytest.approx(law.moment(2), abs=5 * error)
    even = quantity_skew(labels, 4, beta=1e9).sizes
    assert np.ptp(even) <= 10


def test_feature_skew_is_iid_with_noise_of_growing_variance() -> None:
    held = feature_skew(TEN, clients=5, sigma=0.5)
    variances = [set(np.square(held.noise.std[held.client(k)].astype(float)).round(6)) for k in range(5)]  # type: ignore[union-attr]
    assert variances == [{0.1}, {0.2}, {0.3}, {0.4}, {0.5}]


def test_arguments() -> None:
    with pytest.raises(ArgumentError, match="alpha: must be greater than 0"):
        dirichlet_per_class(TEN, clients=2, alpha=0.0)
    with pytest.raises(ArgumentError, match="sigma: must be at least 0"):
        feature_skew(TEN, clients=2, sigma=-1.0)
    with pytest.raises(SpecError, match="needs one class per example"):
        stratified(np.zeros((3, 4), dtype=np.int64), clients=2)
