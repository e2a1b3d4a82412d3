"""The workloads that speed is measured on: the figures of peers/work.py as fedquilt's model, data, method and engine."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from peers.work import WORKLOADS as FIGURES
from peers.work import Work as Figures
from peers.work import write_photos
from torch import Tensor, nn

import fedquilt
from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.data.data import Data, Split
from fedquilt.engines import processes, vectorised
from fedquilt.models import (
    char_lstm,
    cifar_cnn_hsu,
    mnist_2nn,
    mnist_cnn,
    mobilenet_v2,
    random_fourier,
    resnet20_fixup,
    word_lstm,
)
from fedquilt.partition.partition import Partition
from fedquilt.round.session import Engine

SEED = 1


@dataclass(frozen=True)
class Work:
    """One workload: its figures, which are the peers' too, fedquilt's model, and the engine that was chosen by hand."""

    figures: Figures
    model: Callable[[], nn.Module]
    engine: Callable[[], Engine]

    @property
    def about(self) -> str:
        return self.figures.about

    def method(self) -> Algorithm:
        """Return federated averaging."""
        f = self.figures
        fraction = f.cohort / f.clients
        return fedquilt.fed_avg(lr=f.lr, fraction=fraction, epochs=f.epochs, batch=f.batch, momentum=f.momentum)

    def data(self) -> Data:
        """Draw examples at random: time does not depend on what they show."""
        f = self.figures
        count = sum(f.sizes)
        if f.text:
            return text(count, *f.shape, f.classes)
        if f.model == "mobilenet":
            return photos(f)
        return numbers(count, *f.shape, f.classes) if len(f.shape) == 1 else images(count, *f.shape)

    def partition(self, data: Data) -> Partition:
        """Deal the examples out at random."""
        order = np.random.default_rng(SEED).permutation(len(data.train))
        return Partition.by_sizes(order, np.asarray(self.figures.sizes, dtype=np.int64))


def scale(x: Tensor) -> Tensor:
    """Turn bytes into numbers from 0 to 1."""
    return x.float().div_(255.0)


def images(count: int, *shape: int) -> Data:
    """Random images as bytes."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=rng)
    y = torch.randint(0, 10, (count,), generator=rng)
    return Data("random images", Split(x, y), Split(x[:1000], y[:1000]), 10, prepare=scale)


def photos(figures: Figures) -> Data:
    """Random photos in files that are there as long as this process, decoded while the model trains."""
    made = tempfile.TemporaryDirectory()
    atexit.register(made.cleanup)
    folder, count = Path(made.name), sum(figures.sizes)
    write_photos(folder, np.random.default_rng(0).permutation(count) % figures.classes)
    tables = folder / "all.csv", folder / "first.csv"
    return fedquilt.datasets.image_folder(folder, tables[0], test=tables[1], scale="unit", augment=False)


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


SOFTMAX = partial(nn.Linear, 100, 10)
FOURIER = partial(random_fourier, inputs=50, features=100, classes=5)
ONE_BY_ONE = partial(processes, compute="auto")

WORKLOADS = {
    "w1": Work(FIGURES["w1"], mnist_2nn, partial(vectorised, block=5, compute="auto")),
    "w2": Work(FIGURES["w2"], mnist_cnn, ONE_BY_ONE),
    "w3": Work(FIGURES["w3"], SOFTMAX, partial(vectorised, block=5, compute="auto")),
    "w4": Work(FIGURES["w4"], cifar_cnn_hsu, ONE_BY_ONE),
    "w5": Work(FIGURES["w5"], char_lstm, ONE_BY_ONE),
    "w6": Work(FIGURES["w6"], SOFTMAX, partial(vectorised, block=500, compute="auto")),
    "w7": Work(FIGURES["w7"], FOURIER, partial(vectorised, block=5, compute="auto")),
    "w8": Work(FIGURES["w8"], resnet20_fixup, ONE_BY_ONE),
    "w9": Work(FIGURES["w9"], mobilenet_v2, ONE_BY_ONE),
    "w10": Work(FIGURES["w10"], word_lstm, ONE_BY_ONE),
}
