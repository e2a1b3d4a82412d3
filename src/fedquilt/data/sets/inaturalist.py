"""iNaturalist-User-120k and iNaturalist-Geo: photographs of 1,203 species by users, or by where they were taken.

Hsu, Qi and Brown 2020, "Federated Visual Classification with Real-World Data Distribution", section 4.1, from the images
of Van Horn et al. 2018, "The iNaturalist Species Classification and Detection Dataset". Images are found in
`inaturalist/train_val_images`, in whatever folders below. Published splits are those of the authors
(`inaturalist-user-120k` and `inaturalist-geo`) or, in `inaturalist`, TensorFlow Federated's `iNaturalist_train.csv` and
`iNaturalist_test.csv`. The raw source is in `inaturalist_raw`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from fedquilt.base.arguments import Count, Seed, Size
from fedquilt.base.errors import DataError
from fedquilt.base.registry import datasets
from fedquilt.data.data import Data
from fedquilt.data.fetch.by_hand import Wanted, by_hand
from fedquilt.data.fetch.folders import find, folder_for
from fedquilt.data.fetch.published_counts import COUNTS
from fedquilt.data.formats.image_files import ImageFiles
from fedquilt.data.formats.images import Ahead, Images, Scale, image_data
from fedquilt.data.sets.inaturalist_raw import WANTED, read_raw
from fedquilt.data.sets.published_splits import DIGESTS, PublishedSplits

SplitName = Literal["user_120k", "geo_100", "geo_300", "geo_1k", "geo_3k", "geo_10k", "geo_30k"]

CLASSES = 1203
IMAGES = "train_val_images"
TEST_NAME = "test.csv"
VARIANT_TRAIN, VARIANT_TEST = "iNaturalist_train.csv", "iNaturalist_test.csv"
SOURCE = (
    "The authors' split files are at https://github.com/google-research/google-research/tree/master/"
    "federated_vision_datasets, as inaturalist-user-120k.zip and inaturalist-geo.zip."
)
IMAGE_SOURCE = (
    "The images are in train_val_images.tar.gz of iNaturalist 2017 "
    "(https://github.com/visipedia/inat_comp/tree/master/2017)"
)


@datasets.register
def inaturalist(
    split: SplitName = "user_120k",
    source: Literal["published", "raw"] = "published",
    size: Size = 299,
    examples: Count = 100,
    seed: Seed = 0,
    scale: Scale = "imagenet",
    augment: bool = True,
    cache: Path | None = None,
    ahead: Ahead = 2,
    check: bool = True,
) -> Data:
    """Photographs of 1,203 species by 9,275 users, or by location (Hsu 2020).

    - `split`: whose images they are: users', or those of an S2 cell with at most 100, 300, 1,000, … images.
    - `source`: "published" reads the published split files. "raw" makes them anew from iNaturalist 2017's annotations:
      `examples` of every class that has as many, and `seed` decides which; it knows where images were taken, too.
    - `check`: refuse split files whose digests differ from the published ones, where there are any.

    Labels and clients can be looked at without the image files, which are read when they are needed.

    >>> data = inaturalist()  # doctest: +SKIP
    >>> data, len(set(data.train.ids))  # doctest: +SKIP
    (Data(inaturalist user_120k: 120300 to train, 35641 to test, 1203 classes), 9275)
    """
    name, home = f"inaturalist {split}", folder_for("inaturalist")
    if source == "raw":
        names, train, test, classes = read_raw(split, examples, seed)
    else:
        found = _published(split, check)
        found.warn_if_different(name, COUNTS["inaturalist"][split])
        names, train, test, classes = _located(home, found.images), found.train, found.test, found.classes
    within = [home, home / IMAGES]  # which may be a link to another disk
    files = ImageFiles(home, names, f"{IMAGE_SOURCE}; unpack it in {home}.", within)
    return image_data(Data(name, train, test, classes), Images(files, size, scale, cache), augment, ahead)


def _published(split: str, check: bool) -> PublishedSplits:
    """Read the authors' files or, where they are missing, TensorFlow Federated's."""
    train = find(*_paths(split, _train_name(split), VARIANT_TRAIN), source=SOURCE)
    column = split if train.name == VARIANT_TRAIN else "user_id"
    test = train.parent / (VARIANT_TEST if train.name == VARIANT_TRAIN else TEST_NAME)
    if not test.is_file():
        raise DataError(f"{train}: the test split, {test.name}, must be in the same folder. {SOURCE}")
    return PublishedSplits.read(train, test, CLASSES, column, check)


def _train_name(split: str) -> str:
    return f"federated_train_{split}.csv"


def _paths(split: str, name: str, variant: str) -> tuple[str, ...]:
    """List where a file of the authors may lie, then that of TensorFlow Federated which does as well."""
    folder = "inaturalist-user-120k" if split == "user_120k" else "inaturalist-geo"
    return f"{folder}/{name}", f"inaturalist/{folder}/{name}", f"inaturalist/{variant}", variant


def _wanted(split: str) -> tuple[Wanted, Wanted]:
    when = "" if split == "user_120k" else f'split = "{split}"'
    return (
        Wanted(_paths(split, _train_name(split), VARIANT_TRAIN), SOURCE, when, DIGESTS),
        Wanted(_paths(split, TEST_NAME, VARIANT_TEST), SOURCE, when, DIGESTS),
    )


by_hand(
    "inaturalist",
    *(wanted for split in get_args(SplitName) for wanted in _wanted(split)),
    *WANTED,
    Wanted((f"inaturalist/{IMAGES}",), IMAGE_SOURCE),
)


def _located(home: Path, images: Sequence[str]) -> list[str]:
    """Return where images lie, by their ids; for those that are not found, where they could."""
    wanted = {f"{image}.jpg" for image in images}
    found = {
        name: f"{os.path.relpath(folder, home)}/{name}"
        for folder, _, names in os.walk(home / IMAGES)
        for name in wanted.intersection(names)
    }
    return [found.get(f"{image}.jpg", f"{IMAGES}/{image}.jpg") for image in images]
