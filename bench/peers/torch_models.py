"""The workloads' models in PyTorch, as fedquilt's own are, without fedquilt."""

from __future__ import annotations

from itertools import pairwise
from math import pi, sqrt

import numpy as np
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


class CharLSTM(nn.Module):
    """Predict the next character at every place."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, 8)
        self.lstm = nn.LSTM(8, 256, 2, batch_first=True)
        self.predict = nn.Linear(256, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        """Score the characters at every place."""
        return self.predict(self.lstm(self.embed(x))[0])


def perceptron(work) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, work.classes)
    )


def convolutional(*channels: int) -> list[nn.Module]:
    layers = [(nn.Conv2d(a, b, 5, padding=2), nn.MaxPool2d(2), nn.ReLU()) for a, b in pairwise(channels)]
    return [part for layer in layers for part in layer]


def mnist_cnn(work) -> nn.Module:
    dense = (nn.Flatten(), nn.Linear(7 * 7 * 64, 512), nn.ReLU(), nn.Linear(512, work.classes))
    return nn.Sequential(*convolutional(1, 32, 64), *dense)


def hsu_cnn(work) -> nn.Module:
    dense = (nn.Flatten(), nn.Linear(8 * 8 * 64, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU())
    return nn.Sequential(*convolutional(3, 64, 64), *dense, nn.Linear(192, work.classes))


MODELS = {
    "2nn": perceptron,
    "cnn": mnist_cnn,
    "hsu": hsu_cnn,
    "linear": lambda work: nn.Linear(work.shape[0], work.classes),
    "lstm": lambda work: CharLSTM(work.classes),
    "fourier": lambda work: Fourier(work.shape[0], 100, work.classes),
}


def loss(scores: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy, over places too where there are some."""
    return nn.functional.cross_entropy(scores.flatten(0, -2), y.flatten())


def vector(model: nn.Module) -> np.ndarray:
    """All parameters in one vector."""
    return nn.utils.parameters_to_vector(model.parameters()).detach().numpy()
