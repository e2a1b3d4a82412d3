"""Federated EMNIST: handwritten digits and letters by their writers.

Caldas et al. 2018, "LEAF: A Benchmark for Federated Settings", from EMNIST (Cohen et al. 2017); here as TensorFlow
Federated publishes it, in two HDF5 files: 3,400 writers, 671,585 training and 77,483 test images of 28×28 pixels in 62
classes, or the digits alone: 3,383 writers, 341,873 and 40,832. The writers of both parts are the same.

Pixels are from 0 to 1 in the file, ink 0 on paper 1, and are kept as the nearest of 256 shades, a byte each.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from fedquilt.base.errors import DataError
from fedquilt.base.memory import require_memory
from fedquilt.base.registry import datasets
from fedquilt.base.types import Indices
from fedquilt.data.data import Data, Split
from fedquilt.data.fetch.by_hand import Wanted, by_hand
from fedquilt.data.fetch.folders import find
from fedquilt.data.formats.federated_hdf5 import Clients, opened
from fedquilt.data.numbered import number_clients
from fedquilt.data.scale import to_unit

SOURCE = (
    "TensorFlow Federated publishes them as fed_emnist.tar.bz2 and fed_emnist_digitsonly.tar.bz2, to be unpacked: "
    "https://storage.googleapis.com/tff-datasets-public/fed_emnist.tar.bz2"
)
FOLDERS = ("femnist/", "fed_emnist/", "")
STEM, DIGITS_STEM = "fed_emnist", "fed_emnist_digitsonly"
SIDE = 28
WHOLE = 2**62
LABEL_AND_WRITER = 16
"""Bytes of an example besides its pixels."""


@datasets.register
def femnist(only_digits: bool = False) -> Data:
    """Federated EMNIST: digits and letters of 28×28 pixels by 3,400 writers, in 62 classes (Caldas 2018).

    The writers' numbers go with the examples, the same ones for training and testing. `only_digits` takes the smaller set
    of 3,383 writers and ten classes.

    >>> data = femnist()  # doctest: +SKIP
    >>> data.train.x.shape, data.train.x.dtype, data.classes  # doctest: +SKIP
    (torch.Size([671585, 1, 28, 28]), torch.uint8, 62)
    """
    stem, classes = (DIGITS_STEM, 10) if only_digits else (STEM, 62)
    with opened(_find(stem, "train")) as train, opened(_find(stem, "test")) as test:
        ids, test_ids = number_clients(train.names, test.names)
        return Data(
            "femnist",
            _read(train, ids, classes),
            _read(test, test_ids, classes),
            classes=classes,
            prepare=to_unit,
        )


def _paths(stem: str, part: str) -> tuple[str, ...]:
    return tuple(f"{folder}{stem}_{part}.h5" for folder in FOLDERS)


def _find(stem: str, part: str) -> Path:
    return find(*_paths(stem, part), source=SOURCE)


by_hand(
    "femnist",
    *(Wanted(_paths(STEM, part), SOURCE) for part in ("train", "test")),
    *(Wanted(_paths(DIGITS_STEM, part), SOURCE, "only_digits = true") for part in ("train", "test")),
)


def _read(clients: Clients, numbers: Indices, classes: int) -> Split:
    sizes = [len(clients.column(name, "label")) for name in clients.names]
    if not sum(sizes):
        raise DataError(f"{clients.path}: has no examples")
    require_memory(f"{clients.path}: {sum(sizes):,} examples", sum(sizes) * (SIDE * SIDE + LABEL_AND_WRITER))
    x = np.empty((sum(sizes), 1, SIDE, SIDE), dtype=np.uint8)
    y = np.empty(len(x), dtype=np.int64)
    first = 0
    for name, size in zip(clients.names, sizes, strict=True):
        labels = clients.read(name, "label", WHOLE)
        pixels = clients.read(name, "pixels", WHOLE, (SIDE, SIDE))
        where = f"{clients.path}: examples/{name}"
        if len(pixels) != size:
            raise DataError(f"{where} has {len(pixels)} images and {size} labels")
        if not np.issubdtype(labels.dtype, np.integer) or (size and not 0 <= labels.min() <= labels.max() < classes):
            raise DataError(f"{where}/label must be integers from 0 to {classes - 1}")
        if not np.issubdtype(pixels.dtype, np.floating) or (size and not (pixels.min() >= 0 and pixels.max() <= 1)):
            raise DataError(f"{where}/pixels must be numbers from 0 to 1")
        np.multiply(pixels, 255, out=pixels)
        x[first : first + size, 0] = np.rint(pixels, out=pixels)
        y[first : first + size] = labels
        first += size
    return Split(torch.from_numpy(x), torch.from_numpy(y), ids=np.repeat(numbers, sizes))
