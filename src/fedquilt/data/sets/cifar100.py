"""CIFAR-100: 60,000 photographs of 32×32 pixels in 100 classes, which form 20 coarse ones.

Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images", chapter 3. The published binary version: two
files of records, each a coarse label, a fine label and 3,072 bytes, in `cifar-100-binary`.
"""

from __future__ import annotations

from typing import Literal

from fedquilt.base.registry import datasets
from fedquilt.data.data import Data
from fedquilt.data.fetch.published import DownloadSource, File, PublishedData, publish
from fedquilt.data.sets.cifar10 import PIXELS, Preprocess, preprocessing, read_split

LABELS = (20, 100)
RECORD = len(LABELS) + PIXELS

FILES = publish(
    PublishedData(
        "cifar100",
        about="Photographs in 100 classes, or 20 coarse ones, 32×32 (Krizhevsky 2009).",
        train=50_000,
        test=10_000,
        classes=100,
        licence="none stated; cite Krizhevsky 2009",
        files=(
            File("train.bin", 50_000 * RECORD, "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),
            File("test.bin", 10_000 * RECORD, "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
        ),
        folders=("cifar-100-binary", "cifar-100", "cifar100"),
        sources=(
            DownloadSource(
                "archive",
                "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
                size=2**28,
                digest="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            ),
        ),
    )
)

# Over the training set, on the scale of 0 to 255; as commonly published.
MEAN = (129.304166, 124.069963, 112.434050)
STD = (68.170243, 65.391808, 70.418370)


@datasets.register
def cifar100(
    labels: Literal["fine", "coarse"] = "fine", preprocess: Preprocess = "standardise", check: bool = True
) -> Data:
    """CIFAR-100's 50,000 training and 10,000 test images of 32×32 pixels in 100 classes (Krizhevsky 2009).

    `labels` are the 100 `fine` or the 20 `coarse` classes. `preprocess` and `check` are as in
    `cifar10`.

    >>> data = cifar100(labels="coarse")  # doctest: +SKIP
    >>> data.train.x.shape, data.classes  # doctest: +SKIP
    (torch.Size([50000, 3, 32, 32]), 20)
    """
    take = 0 if labels == "coarse" else 1
    train, test = (read_split(FILES, [f"{part}.bin"], LABELS, take, check) for part in ("train", "test"))
    prepare, augment = preprocessing(preprocess, MEAN, STD)
    return Data("cifar100", train, test, classes=LABELS[take], prepare=prepare, augment=augment)
