"""The workloads' models in PyTorch, as fedquilt's own are, without fedquilt."""

from __future__ import annotations

from math import pi, sqrt

import torch
from torch import Tensor, nn


class Fourier(nn.Module):
    """Learnt Fourier features and a linear classifier without bias."""

    def __init__(self, inputs: int, features: int, classes: int) -> None:
        super().__init__()
        self.frequencies = nn.Parameter(torch.randn(features, inputs))
        self.phases = nn.Parameter(2 * pi * torch.rand(features))
        self.classifier = nn.Linear(features, classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Score the classes."""
        return self.classifier(sqrt(2) * torch.cos(nn.functional.linear(x, self.frequencies, self.phases)))


def perceptron(work) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, work.classes)
    )


def convolutional(work) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(7 * 7 * 64, 512),
        nn.ReLU(),
        nn.Linear(512, work.classes),
    )


MODELS = {
    "2nn": perceptron,
    "cnn": convolutional,
    "linear": lambda work: nn.Linear(work.shape[0], work.classes),
    "fourier": lambda work: Fourier(work.shape[0], 100, work.classes),
}
