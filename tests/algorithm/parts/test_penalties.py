"""Penalties: their values, their gradients, and the points where they are not differentiable."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fedquilt.algorithm.parts.features import frobenius, mmd, trace_norm

Penalty = Callable[[Tensor], Tensor]


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def gradient(penalty: Penalty, at: Tensor) -> Tensor:
    at = at.clone().requires_grad_()
    return torch.autograd.grad(penalty(at), at)[0]


SAMPLE = normal(7, 4, seed=9) + 1


def to_sample(features: Tensor) -> Tensor:
    return mmd(features, SAMPLE.to(features.dtype))


def to_sample_squared(features: Tensor) -> Tensor:
    return mmd(features, SAMPLE.to(features.dtype), squared=True)


PENALTIES = [trace_norm, frobenius, to_sample, to_sample_squared]


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("rows", [3, 4, 6])
def test_gradients(penalty: Penalty, rows: int) -> None:
    at = normal(rows, 4).requires_grad_()
    assert torch.autograd.gradcheck(penalty, (at,))
    assert torch.equal(torch.func.grad(penalty)(at.detach()), gradient(penalty, at.detach()))


@pytest.mark.parametrize("penalty", PENALTIES)
def test_mapped_over_clients(penalty: Penalty) -> None:
    at = normal(5, 6, 4)
    gradients, values = torch.func.vmap(torch.func.grad_and_value(penalty))(at)
    torch.testing.assert_close(values, torch.stack([penalty(one) for one in at]))
    torch.testing.assert_close(gradients, torch.stack([gradient(penalty, one) for one in at]))


@pytest.mark.parametrize("penalty", PENALTIES)
def test_single_precision_and_one_number(penalty: Penalty) -> None:
    value = penalty(normal(6, 4, dtype=torch.float32))
    assert value.dtype == torch.float32
    assert value.shape == ()


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4), (1, 6), (6, 1)])
def test_trace_norm_is_the_sum_of_singular_values(shape: tuple[int, int]) -> None:
    matrix = normal(*shape)
    torch.testing.assert_close(trace_norm(matrix), torch.linalg.svdvals(matrix).sum())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rank", [0, 1, 2, 4])
def test_trace_norm_has_a_subgradient_at_any_rank(rank: int, dtype: torch.dtype) -> None:
    """‖W + tH‖_* ≥ ‖W‖_* + t⟨G, H⟩ for all H and t; and G is the shortest such, of rank r with singular values 1."""
    matrix = (normal(6, rank, seed=1) @ normal(rank, 4, seed=2)).to(dtype)
    slope = gradient(trace_norm, matrix)
    singular = torch.tensor([1.0] * rank + [0.0] * (4 - rank), dtype=dtype)
    torch.testing.assert_close(torch.linalg.svdvals(slope), singular, rtol=1e-5, atol=1e-5)
    exact, slope = matrix.double(), slope.double()
    value = torch.linalg.svdvals(exact).sum()
    for seed in range(50):
        direction = normal(6, 4, seed=100 + seed)
        for step in (1e-3, 0.1, 1.0, 10.0):
            there = torch.linalg.svdvals(exact + step * direction).sum()
            assert there >= value + step * (slope * direction).sum() - (1e-5 if dtype == torch.float32 else 1e-9)


@pytest.mark.parametrize(
    "penalty", [trace_norm, frobenius, lambda x: mmd(x, x.detach()), lambda x: mmd(x, 0 * x, True)]
)
def test_at_zero_the_gradient_is_zero(penalty: Penalty) -> None:
    zero = torch.zeros(5, 3)
    assert torch.equal(gradient(penalty, zero), zero)
    assert torch.equal(torch.func.vmap(torch.func.grad(penalty))(torch.zeros(2, 5, 3)), torch.zeros(2, 5, 3))


def test_mmd_at_equal_means_has_no_gradient() -> None:
    features = normal(6, 4)
    assert torch.equal(gradient(lambda x: mmd(x, features), features), torch.zeros(6, 4, dtype=torch.float64))


def test_frobenius_is_over_all_examples() -> None:
    features = normal(6, 4)
    torch.testing.assert_close(frobenius(features), (features.T @ features).trace().sqrt())


def test_mmd_is_the_papers_expansion() -> None:
    """1/m²·Σ⟨x, x'⟩ + 1/n²·Σ⟨z, z'⟩ − 2/(mn)·Σ⟨x, z⟩ (Wei 2022, section 4.1)."""
    x, z = normal(6, 4), normal(9, 4, seed=1) + 1
    expansion = (x @ x.T).mean() + (z @ z.T).mean() - 2 * (x @ z.T).mean()
    torch.testing.assert_close(mmd(x, z, squared=True), expansion)
    torch.testing.assert_close(mmd(x, z), expansion.sqrt())


def test_mmd_of_two_samples_of_one_distribution_vanishes() -> None:
    """n/2·MMD² is χ² with D = 4 degrees of freedom, above 23.5 with probability 1e-4."""
    for n in (10, 1_000, 100_000):
        assert mmd(normal(n, 4, seed=n), normal(n, 4, seed=n + 1), squared=True) < 2 / n * 23.5


def test_mmd_grows_with_a_shift() -> None:
    x, z = normal(10_000, 4), normal(10_000, 4, seed=1)
    distances = [mmd(x, z + shift).item() for shift in (0.0, 0.5, 1.0, 2.0)]
    # Each is 2·shift up to the distance without one.
    assert distances == pytest.approx([0.0, 1.0, 2.0, 4.0], abs=0.07)
    assert distances == sorted(distances)


def test_mmd_sees_means_alone() -> None:
    x = normal(1_000, 4)
    assert mmd(x, x.mean(0) + 10 * (x - x.mean(0))) < 1e-12
