"""The workloads in plain figures and NumPy, so that every peer's environment can read them.

A peer's environment does not hold fedquilt, and FedJAX's does not even hold PyTorch. Data are random, and the first model
comes from one seed; run.py writes both to files in PEERS_DATA, which every program reads. Photos are JPEG files, decoded
by every program when a batch needs them. bench/workloads.py makes of the same figures what fedquilt needs.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Work:
    """One workload in figures. `held` is how many examples each client has in the file, `sizes` how many it uses."""

    name: str
    about: str
    model: str
    shape: tuple[int, ...]
    classes: int
    sizes: tuple[int, ...]
    cohort: int
    epochs: int
    batch: int
    lr: float
    momentum: float = 0.0
    threads: int | None = 1
    """Threads for peers that train in one process with PyTorch: what suits the plain loop. None: as many as there are."""
    share: float = 0.01
    """How far a program's model may be from the plain loop's, as a share of how far that moved in the round."""
    shuffled: bool = True
    held: tuple[int, ...] = ()

    @property
    def clients(self) -> int:
        return len(self.sizes)

    def to_compare(self) -> Work:
        """Return the work that models are compared on: half of a cohort is everybody, and nothing is shuffled.

        Examples that do not fill a batch are left out, because FedJAX fills the last one with examples of its choice.
        """
        count = self.cohort // 2
        whole = tuple(size // self.batch * self.batch for size in self.sizes[:count])
        return replace(self, sizes=whole, cohort=count, shuffled=False, held=self.sizes)

    @property
    def text(self) -> bool:
        """Whether examples are sequences of symbols, each with the one that follows."""
        return self.model in {"lstm", "words"}

    @property
    def photos(self) -> Path | None:
        """The folder of the images, and of the tables of all of them and of the first 100, where examples are photos."""
        return _folder() / self.name if self.model == "mobilenet" else None

    @property
    def rows(self) -> np.ndarray:
        """The rows of the file that clients use, client after client."""
        starts = _starts(self.held or self.sizes)
        return np.concatenate([start + np.arange(size) for start, size in zip(starts, self.sizes, strict=False)])

    def client(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """One client's examples, float32 (symbols and the numbers of photos: int64), and labels."""
        x, y = self._client(index)
        return x.astype(np.float32) / np.float32(255) if x.dtype == np.uint8 else x, y

    def _client(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return self._read(int(_starts(self.held or self.sizes)[index]), self.sizes[index])

    def pixels(self, number: int) -> np.ndarray:
        """Decode a photo, and cut out the middle: (channels, height, width), bytes."""
        from PIL import Image  # noqa: PLC0415

        edge, side = (PHOTO - self.shape[1]) // 2, self.shape[1]
        with Image.open(self.photos / f"{number}.jpg") as image:
            return np.asarray(image)[edge : edge + side, edge : edge + side].transpose(2, 0, 1)

    @property
    def examples(self) -> tuple[np.ndarray, np.ndarray]:
        """All clients' examples, client after client; images as bytes, which 255 divides."""
        if not self.held:
            return self._read(0, sum(self.sizes))
        parts = [self._client(index) for index in range(self.clients)]
        return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])

    def _read(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        kinds = {"x": (np.uint8 if len(self.shape) > 1 else np.float32, self.shape), "y": (np.int64, ())}
        if self.text:
            kinds = dict.fromkeys("xy", (np.int64, self.shape))
        if self.photos:
            kinds = dict.fromkeys("xy", (np.int64, ()))
        parts = []
        for part, (kind, shape) in kinds.items():
            size = math.prod(shape)
            offset = first * size * np.dtype(kind).itemsize
            values = np.fromfile(_folder() / f"{self.name}_{part}.bin", kind, count * size, offset=offset)
            parts.append(values.reshape(count, *shape))
        return parts[0], parts[1]

    @property
    def first_model(self) -> np.ndarray:
        """The model to begin with, as one vector, in PyTorch's order and layout."""
        return np.fromfile(_folder() / f"{self.name}_model.bin", np.float32)

    def torch_model(self):
        """Build the PyTorch model, from one seed."""
        import torch  # noqa: PLC0415
        from torch_models import MODELS  # noqa: PLC0415

        torch.manual_seed(0)
        return MODELS[self.model](self)

    def write(self) -> None:
        """Write data and first model, for programs to read."""
        from torch_models import vector  # noqa: PLC0415

        rng, count = np.random.default_rng(0), sum(self.sizes)
        if self.text:
            text = rng.integers(0, self.classes, (count, self.shape[0] + 1))
            x, y = text[:, :-1], text[:, 1:]
        elif self.photos:
            x, y = np.arange(count), rng.permutation(count) % self.classes
            write_photos(self.photos, y)
        else:
            images, shape = len(self.shape) > 1, (count, *self.shape)
            x = rng.integers(0, 256, shape, np.uint8) if images else rng.standard_normal(shape, np.float32)
            y = rng.integers(0, self.classes, count)
        for part, values in {"x": x, "y": y, "model": vector(self.torch_model())}.items():
            values.tofile(_folder() / f"{self.name}_{part}.bin")


def write_photos(folder: Path, labels: np.ndarray) -> None:
    """Write random images, smooth as photos are, and tables of their labels for fedquilt."""
    from PIL import Image  # noqa: PLC0415

    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    for number in range(len(labels)):
        coarse = Image.fromarray(rng.integers(0, 256, (PHOTO // 8, PHOTO // 8, 3), np.uint8))
        coarse.resize((PHOTO, PHOTO), Image.Resampling.BICUBIC).save(folder / f"{number}.jpg", quality=90)
    lines = [f"{number}.jpg,{label:05d}\n" for number, label in enumerate(labels)]
    for name, some in {"all.csv": lines, "first.csv": lines[:100]}.items():
        (folder / name).write_text("path,label\n" + "".join(some))


def _folder() -> Path:
    return Path(os.environ["PEERS_DATA"])


@cache
def _starts(sizes: tuple[int, ...]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)])


UNEQUAL = tuple(int(size) for size in np.linspace(100, 1000, 10))
MNIST, CIFAR = (1, 28, 28), (3, 32, 32)
PHOTO = 256
"""Pixels along the side of a photo; the model sees its middle."""
KINKS = 0.03
"""The share for ReLU after max-pooling: where the last bit decides a maximum, another pixel gets the gradient."""
ROUNDING = 0.12
"""For MobileNetV2, whose float32 is far from exact: two steps of the plain loop differ by 10% from the same in float64."""

WORKLOADS = {
    work.name: work
    for work in (
        Work(
            "w1",
            "MNIST 2NN, 100 clients of 600, 10 a round, E = 1, B = 10",
            "2nn",
            MNIST,
            10,
            (600,) * 100,
            cohort=10,
            epochs=1,
            batch=10,
            lr=0.05,
        ),
        Work(
            "w2",
            "MNIST CNN, 100 clients of 600, 10 a round, E = 1, B = 50",
            "cnn",
            MNIST,
            10,
            (600,) * 100,
            cohort=10,
            epochs=1,
            batch=50,
            lr=0.05,
            threads=None,
            share=KINKS,
        ),
        Work(
            "w3",
            "softmax regression, 100 features, 100 clients of 100, 10 a round, E = 10, B = 10",
            "linear",
            (100,),
            10,
            (100,) * 100,
            cohort=10,
            epochs=10,
            batch=10,
            lr=0.05,
        ),
        Work(
            "w4",
            "CIFAR CNN of Hsu 2020, 100 clients of 500, 10 a round, E = 1, B = 64",
            "hsu",
            CIFAR,
            10,
            (500,) * 100,
            cohort=10,
            epochs=1,
            batch=64,
            lr=0.05,
            threads=None,
            share=KINKS,
        ),
        Work(
            "w5",
            "character LSTM, 100 clients of 40 sequences of 80, 10 a round, E = 1, B = 10",
            "lstm",
            (80,),
            90,
            (40,) * 100,
            cohort=10,
            epochs=1,
            batch=10,
            lr=0.5,
            threads=None,
        ),
        Work(
            "w6",
            "softmax regression, 100 features, 10,000 clients of 20, 1,000 a round, E = 1, B = 10",
            "linear",
            (100,),
            10,
            (20,) * 10_000,
            cohort=1000,
            epochs=1,
            batch=10,
            lr=0.05,
        ),
        Work(
            "w7",
            "100 random Fourier features, momentum, 10 clients of 100 to 1,000, all a round, E = 10, B = 10",
            "fourier",
            (50,),
            5,
            UNEQUAL,
            cohort=10,
            epochs=10,
            batch=10,
            lr=0.002,
            momentum=0.9,
        ),
        Work(
            "w8",
            "Fixup ResNet-20 of Ozdayi 2020, 4 clients of 5,000 CIFAR images, 2 a round, E = 1, B = 256",
            "resnet",
            CIFAR,
            10,
            (5000,) * 4,
            cohort=2,
            epochs=1,
            batch=256,
            lr=0.05,
            threads=None,
            share=KINKS,
        ),
        Work(
            "w9",
            "MobileNetV2 with group norm of Hsu 2020, 20 clients of 64 photos of 224, 10 a round, E = 1, B = 32",
            "mobilenet",
            (3, 224, 224),
            1203,
            (64,) * 20,
            cohort=10,
            epochs=1,
            batch=32,
            lr=0.005,
            threads=None,
            share=ROUNDING,
        ),
        Work(
            "w10",
            "word LSTM of McMahan 2017, 10,000 words, 200 clients of 50 sequences of 10, 50 a round, E = 1, B = 8",
            "words",
            (10,),
            10_000,
            (50,) * 200,
            cohort=50,
            epochs=1,
            batch=8,
            lr=0.5,
            threads=None,
        ),
    )
}
