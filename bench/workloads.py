"""The workloads that speed is measured on: model, data, clients, method, and the engine that suits them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

import fedquilt
from fedquilt.core.algorithm import Algorithm
from fedquilt.core.engine import Engine
from fedquilt.data.data import Data, Split
from fedquilt.engines import processes, vectorised
from fedquilt.models import char_lstm, cifar_cnn_hsu, mnist_2nn, mnist_cnn, random_fourier
from fedquilt.partition.partition import Partition

SEED = 1


@dataclass(frozen=True)
class Work:
    """One workload."""

    about: str
    model: Callable[[], nn.Module]
    data: Callable[[], Data]
    sizes: Callable[[], list[int]]
    method: Callable[[], Algorithm]
    engine: Callable[[], Engine]
    lr: float
    momentum: float = 0.0

    def partition(self, data: Data) -> Partition:
        """Deal the examples out at random."""
        order = np.random.default_rng(SEED).permutation(len(data.train))
        return Partition.by_sizes(order, np.asarray(self.sizes(), dtype=np.int64))


def scale(x: Tensor) -> Tensor:
    """Turn bytes into numbers from 0 to 1."""
    return x.float().div_(255.0)


def images(count: int, *shape: int) -> Data:
    """Random images as bytes: time does not depend on what they show."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=rng)
    y = torch.randint(0, 10, (count,), generator=rng)
    return Data("random images", Split(x, y), Split(x[:1000], y[:1000]), 10, prepare=scale)


def numbers(count: int, inputs: int, classes: int) -> Data:
    """Random features."""
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(count, inputs, generator=rng), torch.randint(0, classes, (count,), generator=rng)
    return Data("random numbers", Split(x, y), Split(x[:1000], y[:1000]), classes)


def text(count: int, length: int, vocabulary: int) -> Data:
    """Random characters, and the ones that follow."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randint(0, vocabulary, (count, length + 1), generator=rng)
    return Data("random text", Split(x[:, :-1], x[:, 1:]), Split(x[:100, :-1], x[:100, 1:]), vocabulary)


def method(lr: float, fraction: float, epochs: int, batch: int, momentum: float = 0.0) -> Callable[[], Algorithm]:
    """Return federated averaging."""
    return lambda: fedquilt.fed_avg(lr=lr, fraction=fraction, epochs=epochs, batch=batch, momentum=momentum)


def unequal() -> list[int]:
    """Ten sizes from 100 to 1,000."""
    return np.linspace(100, 1000, 10).astype(int).tolist()


WORKLOADS = {
    "w1": Work(
        "MNIST 2NN, 100 clients of 600, 10 a round, E = 1, B = 10",
        mnist_2nn,
        lambda: images(60_000, 1, 28, 28),
        lambda: [600] * 100,
        method(0.05, 0.1, 1, 10),
        lambda: processes(compute="auto"),
        0.05,
    ),
    "w2": Work(
        "MNIST CNN, 100 clients of 600, 10 a round, E = 1, B = 50",
        mnist_cnn,
        lambda: images(60_000, 1, 28, 28),
        lambda: [600] * 100,
        method(0.05, 0.1, 1, 50),
        lambda: processes(compute="auto"),
        0.05,
    ),
    "w3": Work(
        "softmax regression, 100 features, 100 clients of 100, 10 a round, E = 10, B = 10",
        lambda: nn.Linear(100, 10),
        lambda: numbers(10_000, 100, 10),
        lambda: [100] * 100,
        method(0.05, 0.1, 10, 10),
        lambda: vectorised(block=5, compute="auto"),
        0.05,
    ),
    "w4": Work(
        "CIFAR CNN of Hsu 2020, 100 clients of 500, 10 a round, E = 1, B = 64",
        cifar_cnn_hsu,
        lambda: images(50_000, 3, 32, 32),
        lambda: [500] * 100,
        method(0.05, 0.1, 1, 64),
        lambda: processes(compute="auto"),
        0.05,
    ),
    "w5": Work(
        "character LSTM, 100 clients of 40 sequences of 80, 10 a round, E = 1, B = 10",
        char_lstm,
        lambda: text(4_000, 80, 90),
        lambda: [40] * 100,
        method(0.5, 0.1, 1, 10),
        lambda: processes(compute="auto"),
        0.5,
    ),
    "w6": Work(
        "softmax regression, 100 features, 10,000 clients of 20, 1,000 a round, E = 1, B = 10",
        lambda: nn.Linear(100, 10),
        lambda: numbers(200_000, 100, 10),
        lambda: [20] * 10_000,
        method(0.05, 0.1, 1, 10),
        lambda: vectorised(block=500, compute="auto"),
        0.05,
    ),
    "w7": Work(
        "100 random Fourier features, momentum, 10 clients of 100 to 1,000, all a round, E = 10, B = 10",
        lambda: random_fourier(inputs=50, features=100, classes=5),
        lambda: numbers(sum(unequal()), 50, 5),
        unequal,
        method(0.002, 1.0, 10, 10, 0.9),
        lambda: vectorised(block=5, compute="auto"),
        0.002,
        0.9,
    ),
}
