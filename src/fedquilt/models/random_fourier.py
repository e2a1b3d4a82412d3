"""Random Fourier features and a linear classifier: f(x) = Wᵀφ(x), φ(x) = √2·cos(ωᵀx + b).

Wei et al. 2022, "Federated Learning for Non-IID Data: From Theory to Algorithm", sections 2 and 5.1: ω ~ N(0, σ²) and
b ~ U[0, 2π] start as random features (Rahimi and Recht 2007, "Random Features for Large-Scale Kernel Machines") and are
then learnt together with W, which has no bias.

Rahimi and Recht divide by √D, so that φ(x)·φ(y) tends to the Gaussian kernel exp(−σ²‖x − y‖²/2); Wei 2022 prints φ without
that, and so it is by default. The axes of its Figure 2, principal components of 100 features with values within about
0.6, suggest that its authors ran the normalised form.
"""

from __future__ import annotations

from math import isfinite, pi, sqrt
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import PlainValidator
from pydantic_core import PydanticCustomError
from torch import Tensor, nn

from fedquilt.base.arguments import Size
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import models
from fedquilt.base.rng import generator
from fedquilt.compute.kernels.stack import Stack, StackLayer
from fedquilt.data.data import Data
from fedquilt.models.building import classes_of, inputs_of


def _positive_or_median(value: object) -> float | str:
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 and isfinite(value):
        return float(value)
    if isinstance(value, str) and value == "median":
        return value
    raise PydanticCustomError("plain", "must be a number greater than 0, or 'median'")


Sigma = Annotated[float | Literal["median"], PlainValidator(_positive_or_median)]


class RandomFourier(nn.Module):
    """Cosines of random projections, then a linear layer."""

    classifier_layer = "classifier"

    def __init__(self, inputs: int, features: int, classes: int, sigma: float, scale: float, bias: bool) -> None:
        super().__init__()
        self.frequencies = nn.Parameter(sigma * torch.randn(features, inputs))
        self.phases = nn.Parameter(2 * pi * torch.rand(features))
        self.classifier = nn.Linear(features, classes, bias=bias)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        """Map examples of any shape (N, …) to scores (N, classes)."""
        features = self.scale * torch.cos(nn.functional.linear(x.flatten(1), self.frequencies, self.phases))
        scores: Tensor = self.classifier(features)
        return scores

    def as_stack(self) -> Stack:
        """Say what it computes, for the kernel that trains such models."""
        features, inputs = self.frequencies.shape
        bias = None if self.classifier.bias is None else "classifier.bias"
        return Stack(
            (
                StackLayer("frequencies", "phases", inputs, features, "cosine", self.scale),
                StackLayer("classifier.weight", bias, features, self.classifier.out_features),
            )
        )


@models.register
def random_fourier(
    inputs: Size | None = None,
    features: Size = 100,
    classes: Size | None = None,
    sigma: Sigma = 1.0,
    normalise: bool = False,
    learn_features: bool = True,
    bias: bool = False,
    data: Data | None = None,
) -> nn.Module:
    """Random Fourier features, learnt, and a linear classifier, 79,500 parameters on MNIST (Wei 2022).

    - `sigma`: standard deviation of the frequencies, the inverse of the Gaussian kernel's width. "median" takes the
      median distance of two training examples for that width, over at most 1,000 of them.
    - `normalise`: φ(x) = √(2/D)·cos(ωᵀx + b), as Rahimi and Recht have it.
    - `learn_features`: false keeps ω and b as drawn; they are then neither trained nor sent.
    - `bias`: whether the classifier has one.
    - `inputs` and `classes` are those of `data` unless given, and 784 and 10 without data.
    - `data`: what "median" looks at too; a spec fills it in.

    >>> model = random_fourier()
    >>> model(torch.zeros(2, 1, 28, 28)).shape, sum(p.numel() for p in model.parameters())
    (torch.Size([2, 10]), 79500)
    """
    inputs, classes = inputs_of(data, inputs, 784), classes_of(data, classes, 10)
    width = sigma if isinstance(sigma, float) else 1 / _median_distance(data)
    model = RandomFourier(inputs, features, classes, width, sqrt(2 / features) if normalise else sqrt(2), bias)
    model.frequencies.requires_grad_(learn_features)
    model.phases.requires_grad_(learn_features)
    return model


def _median_distance(data: Data | None) -> float:
    if data is None:
        raise SpecError("sigma: 'median' is measured on a data set; pass the data set as data=…, or set a number")
    rows = generator(0, "median heuristic").permutation(len(data.train))[:1000]
    x = data.inputs(data.train, torch.from_numpy(rows))
    distances = torch.pdist(x.flatten(1).double()).numpy()
    median = float(np.median(distances)) if len(distances) else 0.0
    if not (median > 0 and isfinite(median)):
        raise SpecError(f"sigma: the median distance of {data.name}'s training examples is {median:g}; set a number")
    return median
