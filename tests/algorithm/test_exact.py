"""Sums over clients: exact, the same in every order, and never silently wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedquilt.algorithm.exact import LARGEST, ExactMean, WideMean
from fedquilt.base.errors import OverflowInSumError


def mean_of(deltas: list[torch.Tensor], weights: list[float], order: list[int]) -> torch.Tensor | None:
    mean = ExactMean(len(deltas[0]), math.fsum(weights))
    for slot in order:
        mean.add(slot, deltas[slot], weights[slot])
    return mean.finish()


@settings(max_examples=60, deadline=None)
@given(data=st.data(), clients=st.integers(1, 12), seed=st.integers(0, 1000))
def test_the_order_of_arrival_does_not_change_a_bit(data, clients, seed):
    rng = np.random.default_rng(seed)
    deltas = [
        torch.from_numpy(rng.normal(scale=10.0 ** rng.integers(-6, 5), size=40).astype("f4")) for _ in range(clients)
    ]
    weights = [float(rng.integers(1, 1000)) for _ in range(clients)]
    order = data.draw(st.permutations(range(clients)))
    first, second = mean_of(deltas, weights, list(range(clients))), mean_of(deltas, weights, order)
    assert first is not None
    assert torch.equal(first, second)


@pytest.mark.parametrize("size", [0, 1, 40, 1010, 70_000])
@pytest.mark.parametrize("clients", [1, 3, 130])
def test_rows_taken_in_at_once_are_the_same_bits(size, clients):
    rng = np.random.default_rng(size + clients)
    deltas = torch.from_numpy(rng.normal(size=(clients, size)).astype("f4"))
    weights = rng.integers(1, 1000, clients).astype(float).tolist()
    mean = ExactMean(size, math.fsum(weights))
    half = clients // 2
    mean.add_rows(range(half, clients), deltas[half:], weights[half:])
    mean.add_rows(range(half), deltas[:half], weights[:half])
    assert torch.equal(mean.finish(), mean_of(list(deltas), weights, list(range(clients))))


def test_more_weight_than_planned_is_an_error_for_rows_too():
    mean = ExactMean(3, planned_weight=1.0)
    with pytest.raises(OverflowInSumError, match="reported weights are larger than the planned ones"):
        mean.add_rows(range(9), torch.full((9, 3), LARGEST / 2), [1e6] * 9)


def test_the_mean_is_the_one_in_double_precision_rounded_once():
    rng = np.random.default_rng(3)
    deltas = [torch.from_numpy(rng.normal(scale=0.01, size=1000).astype("f4")) for _ in range(100)]
    weights = [float(w) for w in rng.integers(1, 1200, size=100)]
    reference = sum(w * d.double() for w, d in zip(weights, deltas, strict=True)) / sum(weights)
    result = mean_of(deltas, weights, list(range(100)))
    assert (result.double() - reference).abs().max() < 1e-9


def test_the_largest_values_of_a_whole_planned_cohort_fit():
    deltas = [torch.full((3,), LARGEST * (1 - 2**-20)) for _ in range(7)]
    result = mean_of(deltas, [1000.0] * 7, list(range(7)))
    assert torch.equal(result, deltas[0])


def test_more_weight_than_planned_is_an_error_and_not_a_wrong_model():
    mean = ExactMean(2, planned_weight=1.0)
    mean.add(0, torch.tensor([2.0**19, -1.0]), 1.0)
    with pytest.raises(OverflowInSumError, match="overflow"):
        mean.add(1, torch.tensor([2.0**19, 0.0]), 8.0)


def test_without_weight_there_is_no_mean():
    mean = ExactMean(2, planned_weight=3.0)
    assert mean.finish() is None
    mean.add(0, torch.ones(2), 0.0)
    assert mean.finish() is None


@settings(max_examples=60, deadline=None)
@given(data=st.data(), clients=st.integers(1, 8), seed=st.integers(0, 1000))
def test_a_wide_mean_is_the_exact_one_rounded_in_any_order(data, clients, seed):
    rng = np.random.default_rng(seed)
    values = (rng.normal(size=(clients, 30)) * 10.0 ** rng.integers(-30, 30, size=(clients, 30))).astype("f4")
    weights = [float(rng.integers(1, 1000)) for _ in range(clients)]
    order = data.draw(st.permutations(range(clients)))
    means = []
    for slots in (range(clients), order):
        mean = WideMean(30)
        for slot in slots:
            mean.add(slot, torch.from_numpy(values[slot]), weights[slot])
        means.append(mean.finish())
    assert torch.equal(*means)
    columns = values.astype(np.float64).T
    exact = [math.fsum(v * w for v, w in zip(column, weights, strict=True)) / sum(weights) for column in columns]
    assert means[0].tolist() == pytest.approx(exact, rel=1e-7, abs=1e-44)


def test_a_wide_mean_keeps_infinities_and_leaves_out_those_without_weight():
    mean = WideMean(3)
    mean.add(0, torch.tensor([math.inf, -math.inf, 3e38]), 2.0)
    mean.add(1, torch.tensor([math.inf, -math.inf, 3e38]), 2.0**50)
    mean.add(2, torch.tensor([0.0, math.nan, 0.0]), 0.0)
    assert mean.finish().tolist() == [math.inf, -math.inf, pytest.approx(3e38)]


@pytest.mark.parametrize("weight", [2.0**60, 1e100, math.inf, math.nan])
def test_a_weight_that_would_overflow_the_wide_sum_is_refused(weight):
    mean = WideMean(2)
    mean.add(0, torch.tensor([1.0, 3e38]), 2.0**59)
    with pytest.raises(OverflowInSumError, match=r"a client.s weight is .*, and the limit is"):
        mean.add(1, torch.tensor([1.0, 1.0]), weight)
    assert mean.finish().tolist() == pytest.approx([1.0, 3e38], rel=1e-6)
