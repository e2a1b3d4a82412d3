"""The workloads' models in PyTorch, as fedquilt's own are, without fedquilt; and their examples, ready for a model."""

from __future__ import annotations

from itertools import pairwise
from math import pi, sqrt

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset


class Fourier(nn.Module):
    """Learnt Fourier features and a linear classifier without bias."""

    def __init__(self, inputs: int, features: int, classes: int) -> None:
        super().__init__()
        self.frequencies = nn.Parameter(torch.randn(features, inputs))
        self.phases = nn.Parameter(2 * pi * torch.rand(features))
        self.classifier = nn.Linear(features, classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Score the classes."""
        return self.classifier(sqrt(2) * torch.cos(functional.linear(x, self.frequencies, self.phases)))


class NextSymbol(nn.Module):
    """Predict the next character, or word, at every place."""

    def __init__(self, vocabulary: int, embedding: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, 256, layers, batch_first=True)
        self.predict = nn.Linear(256, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        """Score the symbols at every place."""
        return self.predict(self.lstm(self.embed(x))[0])


class FixupBlock(nn.Module):
    """Two convolutions with scalar biases beside a shortcut."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.more = out - channels
        self.stride = 2 if self.more else 1
        self.bias_before_first = nn.Parameter(torch.zeros(1))
        self.first = nn.Conv2d(channels, out, 3, stride=self.stride, padding=1, bias=False)
        self.bias_after_first = nn.Parameter(torch.zeros(1))
        self.bias_before_second = nn.Parameter(torch.zeros(1))
        self.second = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.multiplier = nn.Parameter(torch.ones(1))
        self.bias_after_second = nn.Parameter(torch.zeros(1))
        nn.init.normal_(self.first.weight, std=sqrt(2 / (out * 9)) / 3)
        nn.init.zeros_(self.second.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch to the shortcut."""
        shifted = x + self.bias_before_first
        branch = functional.relu(self.first(shifted) + self.bias_after_first)
        branch = self.second(branch + self.bias_before_second) * self.multiplier + self.bias_after_second
        if self.more:
            x = functional.pad(functional.avg_pool2d(shifted, 1, stride=2), (0, 0, 0, 0, 0, self.more))
        return functional.relu(branch + x)


class FixupResNet20(nn.Module):
    """Nine blocks of 16, 32 and 64 channels, without normalisation."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        widths = (16, 16, 16, 16, 32, 32, 32, 64, 64, 64)
        self.first = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bias_after_first = nn.Parameter(torch.zeros(1))
        self.blocks = nn.Sequential(*(FixupBlock(a, b) for a, b in pairwise(widths)))
        self.bias_before_classifier = nn.Parameter(torch.zeros(1))
        self.classifier = nn.Linear(64, classes)
        nn.init.zeros_(self.classifier.weight)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Score the classes."""
        x = self.blocks(functional.relu(self.first(x) + self.bias_after_first))
        return self.classifier(x.mean((2, 3)) + self.bias_before_classifier)


def normalised(channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> tuple[nn.Module, nn.Module]:
    convolution = nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out")
    return convolution, nn.GroupNorm(8, out)


class InvertedResidual(nn.Module):
    """Widen, convolve each channel by itself, and come back."""

    def __init__(self, channels: int, out: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide, layers = channels * expansion, []
        if expansion > 1:
            layers += [*normalised(channels, wide, 1), nn.ReLU6()]
        layers += [*normalised(wide, wide, 3, stride, groups=wide), nn.ReLU6()]
        self.conv = nn.Sequential(*layers, *normalised(wide, out, 1))
        self.same = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        return x + self.conv(x) if self.same else self.conv(x)


class MobileNetV2(nn.Module):
    """MobileNetV2 with group normalisation, eight groups."""

    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

    def __init__(self, classes: int) -> None:
        super().__init__()
        channels, layers = 32, [*normalised(3, 32, 3, 2), nn.ReLU6()]
        for expansion, out, blocks, stride in self.stages:
            for block in range(blocks):
                layers.append(InvertedResidual(channels, out, 1 if block else stride, expansion))
                channels = out
        self.features = nn.Sequential(*layers, *normalised(channels, 1280, 1), nn.ReLU6())
        self.classifier = nn.Linear(1280, classes)
        nn.init.normal_(self.classifier.weight, std=0.01)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Score the classes."""
        return self.classifier(self.features(x).mean((2, 3)))


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
    "lstm": lambda work: NextSymbol(work.classes, 8, layers=2),
    "words": lambda work: NextSymbol(work.classes, 192, layers=1),
    "resnet": lambda work: FixupResNet20(work.classes),
    "mobilenet": lambda work: MobileNetV2(work.classes),
    "fourier": lambda work: Fourier(work.shape[0], 100, work.classes),
}


def inputs(work, x: Tensor) -> Tensor:
    """Make a batch of examples ready for the model: photos, given by their numbers, are decoded."""
    if not work.photos:
        return x
    return torch.from_numpy(np.stack([work.pixels(number) for number in x.tolist()])).float().div_(255)


def data_set(work, index: int) -> Dataset:
    """Return a client's examples one by one, for a DataLoader."""
    parts = [torch.from_numpy(part) for part in work.client(index)]
    return Photos(work, *parts) if work.photos else TensorDataset(*parts)


class Photos(TensorDataset):
    """Photos, decoded when they are asked for."""

    def __init__(self, work, *parts: Tensor) -> None:
        super().__init__(*parts)
        self.work = work

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        x, y = super().__getitem__(row)
        return inputs(self.work, x[None])[0], y


def loss(scores: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy, over places too where there are some."""
    return functional.cross_entropy(scores.flatten(0, -2), y.flatten())


def vector(model: nn.Module) -> np.ndarray:
    """All parameters in one vector."""
    return nn.utils.parameters_to_vector(model.parameters()).detach().numpy()
