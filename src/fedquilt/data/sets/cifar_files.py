"""The binary version of CIFAR-10 and CIFAR-100: records of label bytes and 3,072 pixels (red, green, blue; row by row)."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from fedquilt.base.errors import DataError
from fedquilt.base.memory import require_memory
from fedquilt.data import crop_and_whiten
from fedquilt.data.data import Augment, Prepare, Split
from fedquilt.data.digest import require_digest
from fedquilt.data.fetch.published import File, PublishedData
from fedquilt.data.files import open_file
from fedquilt.data.scale import standardise, to_unit

PIXELS = 3 * 32 * 32

Preprocess = Literal["standardise", "mcmahan", "none"]
Channels = tuple[float, float, float]


def preprocessing(name: Preprocess, mean: Channels, std: Channels) -> tuple[Prepare, Augment | None]:
    """Return what turns bytes into a model's input; mean and standard deviation are on the scale of 0 to 255."""
    if name == "mcmahan":
        return crop_and_whiten.prepare, crop_and_whiten.augment
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
        if records[:, index].max() >= classes:
            largest = records[:, index].max()
            raise DataError(f"{path}: damaged: a label is {largest}, expected 0 to {classes - 1}")
    return records
