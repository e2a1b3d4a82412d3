"""The terms of Wei 2022's bound against numbers derived by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedquilt.analysis.excess_risk import (
    discrepancy,
    excess_risk,
    trace_norm,
    weight_skew,
    weighted_rademacher,
)

CLIENTS = st.lists(st.tuples(st.integers(1, 10_000), st.integers(0, 1_000)), min_size=1, max_size=20)
SIZES, SHARES = [4, 12], [0.5, 0.5]


def test_weight_skew() -> None:
    """S = Σ p̂²/(n_k/n) = 0.25/0.25 + 0.25/0.75 = 4/3, and χ² = Σ (p̂ − n_k/n)²/(n_k/n) = 0.0625/0.25 + 0.0625/0.75 = 1/3."""
    assert weight_skew(SHARES, SIZES) == pytest.approx(4 / 3)


def test_all_weight_on_one_client_leaves_its_examples_only() -> None:
    """S = 1²/(n_k/n) = n/n_k, so that √(S/n) of G₁ is √(1/n_k)."""
    assert weight_skew([1.0, 0.0], SIZES) == pytest.approx(16 / 4)


@given(clients=CLIENTS)
@settings(deadline=None)
def test_skew_is_1_or_more(clients: list[tuple[int, int]]) -> None:
    sizes, points = np.array(clients, dtype=float).T
    weights = (points + 1) / (points + 1).sum()
    assert weight_skew(weights, sizes) >= 1 - 1e-12


@given(clients=CLIENTS)
@settings(deadline=None)
def test_skew_is_1_at_the_shares_of_the_examples(clients: list[tuple[int, int]]) -> None:
    sizes = np.array(clients, dtype=float)[:, 0]
    assert weight_skew(sizes / sizes.sum(), sizes) == pytest.approx(1, abs=1e-12)


def test_trace_norm() -> None:
    """[[1, 1], [1, 1]] has the eigenvalues 2 and 0; the outer product of u and v has one singular value, ‖u‖·‖v‖."""
    assert trace_norm([[1.0, 1.0], [1.0, 1.0]]) == pytest.approx(2)
    u, v = torch.tensor([3.0, 4.0]), torch.tensor([2.0, 3.0, 6.0])
    assert trace_norm(torch.outer(u, v)) == pytest.approx(5 * 7)
    assert trace_norm(torch.outer(v, u)) == pytest.approx(5 * 7)


def test_trace_norm_of_an_overflowed_classifier() -> None:
    assert math.isnan(trace_norm(torch.tensor([[1.0, math.inf]])))


def test_weighted_rademacher() -> None:
    """B√C = 3·√4 = 6; Σ (p̂_k/n_k)·‖φ‖ = 0.25/10·20 + 0.75/30·40 = 0.5 + 1 = 1.5; together 9."""
    assert weighted_rademacher([0.25, 0.75], [10, 30], [20.0, 40.0], trace=3.0, classes=4) == pytest.approx(9)


def test_weighted_rademacher_bounds_the_complexity() -> None:
    """Definition 1, by enumeration of all signs.

    Over all W with ‖W‖_* ≤ B, the supremum of ⟨W, Φ⟩ with Φ = Σ_k (p̂_k/n_k)·Σ_i φ(x_i)·ε_iᵀ is B times the largest
    singular value of Φ, for which equation 5 takes the Frobenius norm.
    """
    features = torch.tensor([[1.0, 0.0], [1.0, 2.0], [-1.0, 1.0]], dtype=torch.float64)
    weights, sizes, classes, trace = [0.5, 0.5], [1, 2], 2, 1.5
    scale = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=torch.float64)] * 6).reshape(-1, 3, classes)
    sums = torch.einsum("i,id,sic->sdc", scale, features, signs)
    exact = trace * float(torch.linalg.matrix_norm(sums, ord=2).mean())
    bound = weighted_rademacher(
        weights, sizes, [float(features[:1].norm()), float(features[1:].norm())], trace, classes
    )
    assert 0 < exact <= bound


def test_discrepancy() -> None:
    """From m = 0.25·(0, 0) + 0.75·(4, 0) = (3, 0) the distances are 3 and 1, their mean 0.25·3 + 0.75·1 = 1.5."""
    assert discrepancy([[0.0, 0.0], [4.0, 0.0]], [0.25, 0.75]) == pytest.approx(1.5)


def test_clients_with_one_centroid_do_not_differ() -> None:
    assert discrepancy(torch.ones(5, 3), [0.2] * 5) == pytest.approx(0)


def test_excess_risk() -> None:
    """By hand: n = 16, n_k/n = (1/4, 3/4), p̂ = (1/2, 1/2), S = 4/3, W = diag(3, 4) beside a column of 0: B = 7, C = 3.

    Δ = log(2/δ)/2 = 1 for δ = 2/e². The centroids are (0, 0) and (4, 0): disc(p̂, p) = (1/2 − 1/4)·0 + |1/2 − 3/4|·4 = 1,
    and disc(p_k, p) = 3 and 1, as above. The norms are 8 and 6, ‖φ(X)‖ = 10.

    G₁ = 1 + 7√3·(0.5/4·8 + 0.5/12·6) + √(4/3/16) = 1 + 8.75√3 + √(1/12)
    G₂ = 7√3·10/16 + √(1/16) = 4.375√3 + 0.25
    G₃ = 1.5 + 7√3·(0.25/4·8 + 0.75/12·6) + 0.25·√(1/4) + 0.75·√(1/12) = 1.625 + 6.125√3 + 0.75·√(1/12)
    """
    classifier = torch.tensor([[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]])
    given: dict[str, Any] = {"norms": [8.0, 6.0], "means": [[0.0, 0.0], [4.0, 0.0]], "sizes": SIZES, "weights": SHARES}
    risk = excess_risk(classifier, **given, delta=2 / math.e**2)
    root = math.sqrt(3)
    assert risk.agnostic == pytest.approx(1 + 8.75 * root + math.sqrt(1 / 12))
    assert risk.approximation == pytest.approx(4.375 * root + 0.25)
    assert risk.federated == pytest.approx(1.625 + 6.125 * root + 0.75 * math.sqrt(1 / 12))
    assert risk.total == pytest.approx(risk.agnostic + risk.approximation + risk.federated)
    assert (risk.mixture_discrepancy, risk.discrepancy) == pytest.approx((1, 1.5))
    assert (risk.trace, risk.skew, risk.rademacher) == pytest.approx((7, 4 / 3, 8.75 * root))
    assert risk.feature_norms == (8, 6)
    assert excess_risk(classifier.T, **given, delta=2 / math.e**2) == risk


def test_one_client_is_central_training() -> None:
    """K = 1: p̂ = p, S = 1, and all discrepancies are 0, so that G₁ = G₂ = G₃."""
    risk = excess_risk(torch.ones(3, 4), norms=[5.0], means=[[1.0, 2.0, 3.0]], sizes=[50])
    assert risk.agnostic == pytest.approx(risk.approximation) == pytest.approx(risk.federated)


def test_default_weights_are_the_shares_of_the_examples() -> None:
    given: dict[str, Any] = {"norms": [8.0, 6.0], "means": [[0.0, 0.0], [4.0, 0.0]], "sizes": SIZES}
    risk = excess_risk(torch.eye(2), **given)
    assert risk == excess_risk(torch.eye(2), **given, weights=[0.25, 0.75])
    assert (risk.skew, risk.mixture_discrepancy) == (1, 0)


def test_order_of_clients_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    norms, means, sizes, weights = (
        rng.random(7),
        rng.normal(size=(7, 4)),
        rng.integers(1, 90, 7),
        rng.dirichlet(np.ones(7)),
    )
    order, classifier = rng.permutation(7), rng.normal(size=(4, 3))
    here = excess_risk(classifier, norms, means, sizes, weights)
    there = excess_risk(classifier, norms[order], means[order], sizes[order], weights[order])
    for name in ("agnostic", "approximation", "federated", "mixture_discrepancy", "discrepancy", "skew", "rademacher"):
        assert getattr(there, name) == pytest.approx(getattr(here, name)), name
    assert there.feature_norms == tuple(norms[order])


def test_arrays_that_cannot_be_written_to() -> None:
    sizes = np.array(SIZES)
    sizes.flags.writeable = False
    assert weight_skew(SHARES, sizes) == pytest.approx(4 / 3)


def test_a_module_is_taken_as_it_is() -> None:
    """A layer's weight asks for gradients, and has classes × features."""
    layer = torch.nn.Linear(5, 3)
    risk = excess_risk(layer.weight, norms=[1.0], means=torch.zeros(1, 5), sizes=[9])
    assert risk.rademacher == pytest.approx(trace_norm(layer.weight) * math.sqrt(3) / 9)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sizes": [4, 0]}, "every client needs examples"),
        ({"sizes": [4, 12, 1]}, "every client needs a size, a norm and a centroid"),
        ({"norms": [1.0]}, "every client needs a size, a norm and a centroid"),
        ({"weights": [0.5, 0.6]}, "sum to 1"),
        ({"weights": [1.5, -0.5]}, "0 or more"),
        ({"weights": [1.0]}, "1 weights for 2 clients"),
        ({"delta": 0.0}, "between 0 and 1"),
        ({"classifier": torch.ones(5, 4)}, "2 features; got shape"),
        ({"classifier": torch.ones(2)}, "2 features; got shape"),
    ],
)
def test_what_cannot_be_computed_is_named(changed: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "classifier": torch.eye(2),
        "norms": [8.0, 6.0],
        "means": [[0.0, 0.0], [4.0, 0.0]],
        "sizes": SIZES,
    }
    with pytest.raises(ValueError, match=message):
        excess_risk(**{**good, **changed})
