"""Federated EMNIST: handwritten digits and letters by their writers.

Caldas et al. 2018, "LEAF: A Benchmark for Federated Settings", from EMNIST (Cohen et al. 2017); here as TensorFlow
Federated publishes it, in two HDF5 files: 3,400 writers, 671,585 training and 77,483 test images of 28×28 pixels in 62
classes, or the digits alone: 3,383 writers, 341,873 and 40,832. The writers of both parts are the same.

Pixels are from 0 to 1 in the file, ink 0 on paper 1, and are kept as the nearest of 256 shades, a byte each.
"""

from __future__ import annotations

import numpy as np
import torch

from fedquilt.base.errors import DataError
from fedquilt.base.memory import require_memory
from fedquilt.base.registry import datasets
from fedquilt.base.types import Indices
from fedquilt.data.data import Data, Split
from fedquilt.data.fetch.published import Counts, Wanted, by_hand
from fedquilt.data.formats.federated_hdf5 import Clients, opened
from fedquilt.data.labels import number_clients
from fedquilt.data.preprocess import to_unit

SOURCE = (
    "TensorFlow Federated publishes them as fed_emnist.tar.bz2 and fed_emnist_digitsonly.tar.bz2, to be unpacked: "
    "https://storage.googleapis.com/tff-datasets-public/fed_emnist.tar.bz2"
)
FOLDERS = ("femnist", "fed_emnist", "")
PARTS = ("train", "test")
FILES = [Wanted.below(FOLDERS, f"fed_emnist_{part}.h5", SOURCE) for part in PARTS]
DIGITS = [Wanted.below(FOLDERS, f"fed_emnist_digitsonly_{part}.h5", SOURCE, "only_digits = true") for part in PARTS]

by_hand(
    "femnist",
    FILES + DIGITS,
    [
        Counts("TensorFlow Federated", 3_400, 671_585, 77_483, 62),
        Counts("TensorFlow Federated", 3_383, 341_873, 40_832, 10, when="only_digits = true"),
    ],
)

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
    files, classes = (DIGITS, 10) if only_digits else (FILES, 62)
    with opened(files[0].find()) as train, opened(files[1].find()) as test:
        ids, test_ids = number_clients(train.names, test.names)
        parts = _read(train, ids, classes), _read(test, test_ids, classes)
        return Data("femnist", *parts, classes=classes, prepare=to_unit)


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
