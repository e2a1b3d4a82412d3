"""Gaussian estimates of features, and samples of their mixture. Statistical bounds are five standard errors or more."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fedquilt.algorithm.parts.features import Estimator, draw, estimate, unpacked

ESTIMATORS: list[Estimator] = ["diagonal", "full"]


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def covariance(features: Tensor) -> Tensor:
    return torch.cov(features.double().T, correction=0).reshape(features.shape[1], features.shape[1])


def drawn(
    estimates: list[dict[str, Tensor]], weights: list[float], count: int, estimator: Estimator, seed: int = 0
) -> Tensor:
    means, scales = (torch.stack([one[key] for one in estimates]) for key in ("mean", "scale"))
    return draw(means, scales, torch.tensor(weights), count, np.random.default_rng(seed), estimator)


@pytest.mark.parametrize(("n", "dimensions"), [(50, 4), (4, 4), (3, 8), (2, 5), (7, 1), (1, 3)])
def test_estimate_has_the_features_moments(n: int, dimensions: int) -> None:
    features = normal(n, dimensions) @ normal(dimensions, dimensions, seed=1) + 3
    diagonal, full = (estimate(features, estimator) for estimator in ESTIMATORS)
    for one in (diagonal, full):
        torch.testing.assert_close(one["mean"], features.mean(0))
        assert one["scale"].dtype == torch.float32
    torch.testing.assert_close(diagonal["scale"], features.double().std(0, correction=0).float())
    assert full["scale"].shape == (dimensions * (dimensions + 1) // 2,)
    factor = unpacked(full["scale"])
    assert torch.equal(factor, factor.tril())
    assert (factor.diagonal() >= 0).all()
    torch.testing.assert_close((factor @ factor.T).double(), covariance(features), rtol=1e-5, atol=1e-5)


def test_in_double_precision_the_factor_is_choleskys() -> None:
    features = normal(40, 5, dtype=torch.float64)
    factor = unpacked(estimate(features, "full")["scale"])
    torch.testing.assert_close(factor, torch.linalg.cholesky(covariance(features)))


def test_features_on_a_line_stay_on_it() -> None:
    """Rank 1 in five dimensions: no jitter widens it, in the estimate or in a sample."""
    along = torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0], dtype=torch.float64)
    features = normal(30, 1, dtype=torch.float64) * along + 1
    factor = unpacked(estimate(features, "full")["scale"])
    torch.testing.assert_close(factor @ factor.T, covariance(features), rtol=1e-12, atol=1e-12)
    assert torch.linalg.svdvals(factor)[1:].max() < 1e-12
    off = drawn([estimate(features.float(), "full")], [1.0], 100, "full").double() - 1
    assert (off - (off @ along).outer(along) / along.square().sum()).abs().max() < 1e-5


def test_fewer_examples_than_dimensions() -> None:
    """Three examples span a plane: samples lie in it."""
    features = normal(3, 10)
    samples = drawn([estimate(features, "full")], [1.0], 500, "full")
    assert (torch.linalg.svdvals(samples - features.mean(0))[2:] < 1e-3).all()
    assert (torch.linalg.svdvals(samples - features.mean(0))[:2] > 1).all()


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("n", [1, 3, 1000])
def test_examples_that_are_all_alike_have_no_spread(estimator: Estimator, n: int) -> None:
    example = normal(1, 6)
    one = estimate(example.expand(n, 6), estimator)
    assert torch.equal(one["mean"], example[0])
    assert not one["scale"].any()
    assert torch.equal(drawn([one], [1.0], 4, estimator), example.expand(4, 6))


def test_a_diagonal_estimate_keeps_variances_alone() -> None:
    features = normal(200, 3) @ normal(3, 3, seed=1)
    samples = drawn([estimate(features, "diagonal")], [1.0], 40_000, "diagonal")
    variances = covariance(features).diagonal()
    # A variance's relative standard error is √(2/40000) = 0.007, a correlation's standard error 0.005.
    torch.testing.assert_close(covariance(samples).diagonal(), variances, rtol=0.04, atol=0.0)
    correlations = torch.corrcoef(samples.T) - torch.eye(3)
    assert correlations.abs().max() < 0.03
    assert (torch.corrcoef(features.T) - torch.eye(3)).abs().max() > 0.3


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_estimates_of_samples_are_what_was_drawn_from(estimator: Estimator) -> None:
    truth = estimate(normal(20, 3) @ normal(3, 3, seed=1) + 2, estimator)
    again = estimate(drawn([truth], [1.0], 40_000, estimator), estimator)
    spread = truth["scale"].abs().max().item()
    # Standard errors: of a mean σ/200, of an entry of L at most that too.
    torch.testing.assert_close(again["mean"], truth["mean"], rtol=0.0, atol=spread / 30)
    torch.testing.assert_close(again["scale"], truth["scale"], rtol=0.0, atol=spread / 30)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_moments_of_a_mixture(estimator: Estimator) -> None:
    """Mean Σ p_k·μ_k; covariance Σ p_k·(C_k + μ_k·μ_kᵀ) − μ·μᵀ."""
    clients = [normal(50, 2, seed=k) @ normal(2, 2, seed=10 + k) + 3 * normal(2, seed=20 + k) for k in range(3)]
    estimates, shares = [estimate(features, estimator) for features in clients], [0.2, 0.5, 0.3]
    means = [features.double().mean(0) for features in clients]
    spreads = [covariance(features) for features in clients]
    if estimator == "diagonal":
        spreads = [spread.diagonal().diag() for spread in spreads]
    mean = sum((p * m for p, m in zip(shares, means, strict=True)), torch.zeros(2).double())
    moments = (p * (c + m.outer(m)) for p, m, c in zip(shares, means, spreads, strict=True))
    expected = sum(moments, torch.zeros(2, 2).double()) - mean.outer(mean)
    # Weights of 2 : 5 : 3 are the same mixture.
    samples = drawn(estimates, [2.0, 5.0, 3.0], 100_000, estimator)
    size = expected.diagonal().max().item()
    torch.testing.assert_close(samples.double().mean(0), mean, rtol=0.0, atol=5 * (size / 100_000) ** 0.5)
    torch.testing.assert_close(covariance(samples), expected, rtol=0.0, atol=0.03 * size)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_weights_are_respected(estimator: Estimator) -> None:
    """Three points; of 10,000 draws, each has its share within five standard errors (0.025), and a weight of 0 has none."""
    points = [estimate(torch.full((1, 2), float(k)), estimator) for k in range(4)]
    samples = drawn(points, [1.0, 0.0, 6.0, 3.0], 10_000, estimator)
    shares = torch.bincount(samples[:, 0].long(), minlength=4) / 10_000
    assert shares.tolist() == pytest.approx([0.1, 0.0, 0.6, 0.3], abs=0.025)
    assert shares[1] == 0
    assert torch.equal(samples[:, 0], samples[:, 1])


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_generator_decides_the_bits(estimator: Estimator) -> None:
    estimates = [estimate(normal(9, 3, seed=k), estimator) for k in range(2)]
    torch.manual_seed(0)
    first = drawn(estimates, [1.0, 1.0], 20, estimator)
    before = torch.get_rng_state()
    assert torch.equal(first, drawn(estimates, [1.0, 1.0], 20, estimator))
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.equal(first, drawn(estimates, [1.0, 1.0], 20, estimator, seed=1))
    assert first.shape == (20, 3)
    assert first.dtype == torch.float32


def test_nothing_is_differentiated_through_an_estimate() -> None:
    features = normal(9, 3).requires_grad_()
    assert not any(tensor.requires_grad for one in ESTIMATORS for tensor in estimate(features, one).values())
