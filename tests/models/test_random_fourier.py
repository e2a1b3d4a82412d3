"""Random Fourier features: the kernel that they stand for, their scale, and what is trained."""

from __future__ import annotations

from math import exp, pi, sqrt

import numpy as np
import pytest
import torch
from torch import nn

import fedquilt
from fedquilt import models
from fedquilt.base.arguments import ArgumentError
from fedquilt.base.errors import FedquiltError
from fedquilt.compute.layout import Layout
from fedquilt.data.data import Data


def features_of(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    seen: list[torch.Tensor] = []
    layer = model.get_submodule(str(model.classifier_layer))
    layer.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        model(x)
    return seen[0]


def spread(sigma: object, data: Data | None = None) -> float:
    """Return the standard deviation of 32 frequencies, drawn with one seed."""
    torch.manual_seed(0)
    model = models.random_fourier(inputs=8, features=4, sigma=sigma, data=data)  # type: ignore[arg-type]
    return model.get_parameter("frequencies").std().item()


def test_the_equation() -> None:
    torch.manual_seed(0)
    model, x = models.random_fourier(inputs=6, features=5, classes=3), torch.randn(4, 2, 3)
    omega, b, w = (p.detach().double() for p in model.parameters())
    phi = sqrt(2) * torch.cos(x.flatten(1).double() @ omega.T + b)
    torch.testing.assert_close(features_of(model, x).double(), phi, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model(x).double(), phi @ w.T, rtol=1e-5, atol=1e-5)


def test_the_start_is_as_drawn() -> None:
    """200,000 frequencies: their standard deviation is within 1% of σ, and the phases fill [0, 2π]."""
    torch.manual_seed(0)
    model = models.random_fourier(inputs=20, features=10_000, sigma=0.3)
    frequencies, phases = model.get_parameter("frequencies"), model.get_parameter("phases")
    assert frequencies.std().item() == pytest.approx(0.3, rel=0.01)
    assert abs(frequencies.mean().item()) < 0.003
    assert phases.min() >= 0
    assert phases.max() <= 2 * pi
    assert phases.mean().item() == pytest.approx(pi, rel=0.03)


def test_normalised_features_give_the_gaussian_kernel() -> None:
    """A mean of D terms 2·cos·cos, whose variance is at most 1.5: at D = 20,000, 0.05 is more than five standard errors."""
    torch.manual_seed(0)
    model = models.random_fourier(inputs=3, features=20_000, sigma=0.7, normalise=True)
    x = torch.tensor([[0.0, 0.0, 0.0], [1.0, -0.5, 0.3], [2.0, 1.0, 1.0]])
    phi = features_of(model, x)
    for i in range(3):
        for j in range(3):
            kernel = exp(-(0.7**2) * float((x[i] - x[j]).square().sum()) / 2)
            assert float(phi[i] @ phi[j]) == pytest.approx(kernel, abs=0.05)


def test_normalising_only_scales() -> None:
    x = torch.rand(3, 8, generator=torch.Generator().manual_seed(1))
    plain, normalised = (
        features_of(model, x)
        for model in (_seeded(inputs=8, features=16), _seeded(inputs=8, features=16, normalise=True))
    )
    torch.testing.assert_close(plain / 4, normalised)


def _seeded(**arguments: int) -> nn.Module:
    torch.manual_seed(0)
    return models.random_fourier(**arguments)  # type: ignore[arg-type]


def test_features_that_are_not_learnt_are_not_sent() -> None:
    names = [entry.name for entry in Layout.of(models.random_fourier(learn_features=False)).parameters]
    assert names == ["classifier.weight"]
    assert Layout.of(models.random_fourier()).size == 79_500


def test_median_heuristic(blobs: Data) -> None:
    """All 240 examples are looked at; σ multiplies one and the same draw."""
    x = blobs.train.x.numpy().astype(np.float64)
    rows, columns = np.triu_indices(len(x), 1)
    median = np.median(np.linalg.norm(x[rows] - x[columns], axis=1))
    assert spread("median", data=blobs) == pytest.approx(spread(1 / median), rel=1e-6)


def test_median_heuristic_looks_at_prepared_examples_and_at_a_thousand_of_them() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3000, 8)).astype(np.float32), np.arange(3000) % 2
    rows: list[int] = []

    def doubled(raw: torch.Tensor) -> torch.Tensor:
        rows.append(len(raw))
        return 2 * raw

    plain, twice = (fedquilt.arrays(x, y, x[:9], y[:9], prepare=prepare) for prepare in (None, doubled))
    once = spread("median", data=plain)
    assert spread("median", data=twice) == pytest.approx(once / 2, rel=1e-6)
    assert rows == [1, 1000]  # one tells the number of inputs
    assert spread("median", data=plain) == once
    # The distance of two points of a normal distribution in 8 dimensions: √2·χ(8), whose median is 3.832.
    assert once == pytest.approx(spread(1 / 3.832), rel=0.03)


def test_a_median_that_cannot_be_had_is_explained() -> None:
    with pytest.raises(
        FedquiltError, match=r"sigma: 'median' is measured on a data set; pass the data set as data=…, or set a number"
    ):
        models.random_fourier(sigma="median")
    alike = fedquilt.arrays(np.ones((9, 8)), np.arange(9) % 2, np.ones((2, 8)), np.arange(2), name="alike")
    with pytest.raises(
        FedquiltError, match=r"sigma: the median distance of alike's training examples is 0; set a number"
    ):
        models.random_fourier(inputs=8, sigma="median", data=alike)


@pytest.mark.parametrize("sigma", [0, -1.0, float("inf"), float("nan"), "mean", True, None])
def test_impossible_sigma(sigma: object) -> None:
    with pytest.raises(
        ArgumentError, match="random_fourier: sigma: must be a number greater than 0, or 'median', got "
    ):
        models.random_fourier(sigma=sigma)  # type: ignore[arg-type]
