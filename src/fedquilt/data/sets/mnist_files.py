"""Data sets of 28×28 images in ten classes in MNIST's four idx files: MNIST itself, and those made to replace it."""

from __future__ import annotations

import functools

import torch

from fedquilt.base.errors import DataError
from fedquilt.data.data import Data, Prepare, Split
from fedquilt.data.fetch.published import DownloadSource, File, PublishedData
from fedquilt.data.formats.idx import read_idx
from fedquilt.data.scale import standardise, to_unit

_IMAGE = 28 * 28


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


def read_idx_data(files: PublishedData, mean_and_std: tuple[float, float] | None, check: bool = True) -> Data:
    """Read a data set; pixels are scaled to [0, 1] and then, if mean and standard deviation are given, standardised.

    With `check`, files must have their published digests.
    """
    prepare: Prepare = to_unit
    if mean_and_std is not None:
        mean, std = mean_and_std
        prepare = functools.partial(standardise, mean=mean * 255, std=std * 255)
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
