"""iNaturalist-User-120k and iNaturalist-Geo: photographs of 1,203 species by users, or by where they were taken.

Hsu, Qi and Brown 2020, "Federated Visual Classification with Real-World Data Distribution", section 4.1, from the images
of Van Horn et al. 2018, "The iNaturalist Species Classification and Detection Dataset". Images are found in
`inaturalist/train_val_images`, in whatever folders below. Published splits are those of the authors
(`inaturalist-user-120k` and `inaturalist-geo`) or, in `inaturalist`, TensorFlow Federated's `iNaturalist_train.csv` and
`iNaturalist_test.csv`. Numbers of clients and images are the paper's, which has none for two of the splits; those of test
images are from the authors' split files.

The raw source is the annotations of iNaturalist 2017 and its file of locations and users. The paper: "truncate tail classes
with less than 100 training examples", then subsample "until all remaining classes each have 100 examples"; partition by
user, or by S2 cells with at most N_max examples, those with less than 0.01·N_max left out. It tests on the validation
images of the same classes. `train2017.json` and `val2017.json` have COCO's form: `images` (`id`, `file_name`) and
`annotations` (`image_id`, `category_id`). `train2017_locations.json` is a list of images' `id`, `lat`, `lon` and `user_id`.
Images without a user are left out before anything is counted, since they would belong to nobody. Which examples the authors
drew is not known.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch

from fedquilt.base.arguments import Count, Seed, Size
from fedquilt.base.errors import DataError
from fedquilt.base.registry import datasets
from fedquilt.base.rng import generator
from fedquilt.base.types import Indices
from fedquilt.data.cells import adaptive_cells, numbered_cells
from fedquilt.data.data import Data, Split
from fedquilt.data.fetch.folders import folder_for
from fedquilt.data.fetch.published import Counts, Wanted, by_hand
from fedquilt.data.formats.image_sources import ImageFiles
from fedquilt.data.formats.images import Ahead, Images, Scale, image_data
from fedquilt.data.formats.rows import read_json
from fedquilt.data.sets.published_splits import DIGESTS, PublishedSplits

PublishedSplit = Literal["user_120k", "geo_100", "geo_300", "geo_1k", "geo_3k", "geo_10k", "geo_30k"]

CLASSES = 1203
IMAGES = "train_val_images"
VARIANT = "iNaturalist_train.csv"
PAGE = "https://github.com/visipedia/inat_comp/tree/master/2017"
IMAGE_SOURCE = f"The images are in train_val_images.tar.gz of iNaturalist 2017 ({PAGE})"
SPLIT_SOURCE = (
    "The authors' split files are at https://github.com/google-research/google-research/tree/master/"
    "federated_vision_datasets, as inaturalist-user-120k.zip and inaturalist-geo.zip."
)
RAW_SOURCE = f"iNaturalist 2017 has it in train_val2017.zip or inat2017_locations.zip: {PAGE}"
RAW_FOLDERS = ("inaturalist", "inaturalist/train_val2017", "inaturalist/inat2017_locations", "inat2017_locations")
TRAIN, VALIDATION, LOCATIONS = (
    Wanted.below(RAW_FOLDERS, name, RAW_SOURCE, 'source = "raw"')
    for name in ("train2017.json", "val2017.json", "train2017_locations.json")
)

MOST = {"geo_100": 100, "geo_300": 300, "geo_1k": 1000, "geo_3k": 3000, "geo_10k": 10_000, "geo_30k": 30_000}
"""N_max of the splits by location."""

LEAST_SHARE = 0.01

CLIENTS = {"user_120k": 9_275, "geo_100": 3_606, "geo_1k": 368, "geo_3k": 135, "geo_30k": 11}
COUNTS = {
    split: Counts(
        "Hsu 2020",
        CLIENTS.get(split),
        120_300 if split == "user_120k" else None,
        35_641,
        CLASSES,
        of="images",
        when="" if split == "user_120k" else f'split = "{split}"',
    )
    for split in get_args(PublishedSplit)
}


def _wanted(split: str, name: str, variant: str) -> Wanted:
    """Return a file of the authors, or that of TensorFlow Federated which does as well."""
    folder = "inaturalist-user-120k" if split == "user_120k" else "inaturalist-geo"
    names = (f"{folder}/{name}", f"inaturalist/{folder}/{name}", f"inaturalist/{variant}", variant)
    return Wanted(names, SPLIT_SOURCE, COUNTS[split].when, DIGESTS)


TRAIN_SPLITS = {split: _wanted(split, f"federated_train_{split}.csv", VARIANT) for split in COUNTS}
TEST_SPLITS = {split: _wanted(split, "test.csv", "iNaturalist_test.csv") for split in COUNTS}

by_hand(
    "inaturalist",
    [
        *(wanted for split in COUNTS for wanted in (TRAIN_SPLITS[split], TEST_SPLITS[split])),
        *(TRAIN, VALIDATION, LOCATIONS),
        Wanted((f"inaturalist/{IMAGES}",), IMAGE_SOURCE),
    ],
    [*COUNTS.values()],
)


@datasets.register
def inaturalist(
    split: PublishedSplit = "user_120k",
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
        names, train, test, classes = _read_raw(split, examples, seed)
    else:
        found = _read_published(split, check)
        found.warn_if_different(name, COUNTS[split])
        names, train, test, classes = _located(home, found.images), found.train, found.test, found.classes
    within = [home, home / IMAGES]  # which may be a link to another disk
    files = ImageFiles(home, names, f"{IMAGE_SOURCE}; unpack it in {home}.", within)
    return image_data(Data(name, train, test, classes), Images(files, size, scale, cache), augment, ahead)


def _read_published(split: str, check: bool) -> PublishedSplits:
    """Read the authors' files or, where they are missing, TensorFlow Federated's."""
    train = TRAIN_SPLITS[split].find()
    variant = train.name == VARIANT
    test = train.with_name("iNaturalist_test.csv" if variant else "test.csv")
    if not test.is_file():
        raise DataError(f"{train}: the test split, {test.name}, must be in the same folder. {SPLIT_SOURCE}")
    return PublishedSplits.read(train, test, CLASSES, split if variant else "user_id", check)


def _located(home: Path, images: Sequence[str]) -> list[str]:
    """Return where images lie, by their ids; for those that are not found, where they could."""
    wanted = {f"{image}.jpg" for image in images}
    found = {
        name: f"{os.path.relpath(folder, home)}/{name}"
        for folder, _, names in os.walk(home / IMAGES)
        for name in wanted.intersection(names)
    }
    return [found.get(f"{image}.jpg", f"{IMAGES}/{image}.jpg") for image in images]


def _read_raw(split: str, examples: int, seed: int) -> tuple[list[str], Split, Split, int]:
    """Return the names of all files, the splits whose examples are their numbers, and the number of classes."""
    images, files, every_label = _annotated(TRAIN.find())
    users, coordinates = _users_and_coordinates(LOCATIONS.find(), images)
    owned = np.flatnonzero(users >= 0)
    rows = owned[balanced(every_label[owned], examples, seed)]
    if not len(rows):
        raise DataError(
            f"examples: no class of train2017.json has {examples} images with a user; choose a smaller number"
        )
    kinds = np.unique(every_label[rows])
    owner = np.unique(users[rows], return_inverse=True)[1]
    if split in MOST:
        owner = numbered_cells(adaptive_cells(coordinates[rows], MOST[split]), LEAST_SHARE * MOST[split])
        rows, owner = rows[owner >= 0], owner[owner >= 0]
        if not len(rows):
            raise DataError(f"split: no cell has {LEAST_SHARE * MOST[split]:g} images or more")
    _, test_files, every_test_label = _annotated(VALIDATION.find())
    test_rows = np.flatnonzero(np.isin(every_test_label, kinds))
    if not len(test_rows):
        raise DataError("val2017.json has no image of the classes that were kept of train2017.json")
    labels, test_labels = (
        torch.from_numpy(np.searchsorted(kinds, of)) for of in (every_label[rows], every_test_label[test_rows])
    )
    train = Split(torch.arange(len(rows)), labels, owner, coordinates[rows])
    test = Split(torch.arange(len(rows), len(rows) + len(test_rows)), test_labels)
    return [files[row] for row in rows] + [test_files[row] for row in test_rows], train, test, len(kinds)


def balanced(labels: npt.NDArray[np.int64], examples: int, seed: int) -> Indices:
    """Return the positions of `examples` of every class that has so many, in the data's order.

    >>> balanced(np.array([5, 5, 7, 5, 9, 9]), examples=2, seed=0)[-2:].tolist()
    [4, 5]
    """
    order = np.argsort(labels, kind="stable")
    kinds, starts, counts = np.unique(labels[order], return_index=True, return_counts=True)
    parts = [
        generator(seed, "inaturalist", int(kind)).permutation(order[start : start + count])[:examples]
        for kind, start, count in zip(kinds, starts, counts, strict=True)
        if count >= examples
    ]
    return np.sort(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64)


def _annotated(path: Path) -> tuple[list[int], list[str], Indices]:
    """Return the ids, the files and the classes of images."""
    with _as_expected(path):
        content = read_json(path)
        file_of = {int(image["id"]): str(image["file_name"]) for image in content["images"]}
        images = [int(note["image_id"]) for note in content["annotations"]]
        labels = np.array([int(note["category_id"]) for note in content["annotations"]], dtype=np.int64)
        return images, [file_of[image] for image in images], labels


def _users_and_coordinates(path: Path, images: Sequence[int]) -> tuple[Indices, npt.NDArray[np.float64]]:
    """Read the user and the coordinates of images; −1 and NaN where they are not known."""
    unknown: dict[str, Any] = {"user_id": None, "lat": None, "lon": None}
    with _as_expected(path):
        about = {int(entry["id"]): entry for entry in read_json(path)}
        found = [about.get(image, unknown) for image in images]
        users = [-1 if entry["user_id"] is None else int(entry["user_id"]) for entry in found]
        coordinates = np.array([[entry["lat"], entry["lon"]] for entry in found], dtype=np.float64)
    coordinates[np.isnan(coordinates).any(axis=1)] = np.nan
    if (np.abs(coordinates) > [90, 180]).any():
        raise DataError(
            f"{path}: a latitude is not between −90 and 90 degrees, or a longitude not between −180 and 180"
        )
    return np.array(users, dtype=np.int64), coordinates


@contextmanager
def _as_expected(path: Path) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: is not a file of iNaturalist 2017: {type(error).__name__}: {error}") from None
