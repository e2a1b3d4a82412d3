"""iNaturalist-User-120k and -Geo, made from the annotations of iNaturalist 2017 and its file of locations and users.

Hsu, Qi and Brown 2020, section 4.1: "truncate tail classes with less than 100 training examples", then subsample "until
all remaining classes each have 100 examples"; partition by user, or by S2 cells with at most N_max examples, those with
less than 0.01·N_max left out. The paper tests on the validation images of the same classes.

`train2017.json` and `val2017.json` have COCO's form: `images` (`id`, `file_name`) and `annotations` (`image_id`,
`category_id`). `train2017_locations.json` is a list of images' `id`, `lat`, `lon` and `user_id`. Images without a user are
left out before anything is counted, since they would belong to nobody. Which examples the authors drew is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedquilt.base.errors import DataError
from fedquilt.base.rng import generator
from fedquilt.base.types import Indices
from fedquilt.data.cells import adaptive_cells, numbered_cells
from fedquilt.data.data import Split
from fedquilt.data.fetch.by_hand import Wanted
from fedquilt.data.fetch.folders import find
from fedquilt.data.formats.json_file import read_json

MOST = {"geo_100": 100, "geo_300": 300, "geo_1k": 1000, "geo_3k": 3000, "geo_10k": 10_000, "geo_30k": 30_000}
"""N_max of the splits by location."""

LEAST_SHARE = 0.01

FOLDERS = ("inaturalist", "inaturalist/train_val2017", "inaturalist/inat2017_locations", "inat2017_locations")
TRAIN, VALIDATION, LOCATIONS = "train2017.json", "val2017.json", "train2017_locations.json"
SOURCE = (
    "iNaturalist 2017 has it in train_val2017.zip or inat2017_locations.zip: "
    "https://github.com/visipedia/inat_comp/tree/master/2017"
)


def read_raw(split: str, examples: int, seed: int) -> tuple[list[str], Split, Split, int]:
    """Return the names of all files, the splits whose examples are their numbers, and the number of classes."""
    taken = _annotated(TRAIN)
    users, coordinates = _users_and_coordinates(taken.images)
    owned = np.flatnonzero(users >= 0)
    rows = owned[balanced(taken.labels[owned], examples, seed)]
    if not len(rows):
        raise DataError(
            f"examples: no class of train2017.json has {examples} images with a user; choose a smaller number"
        )
    kinds = np.unique(taken.labels[rows])
    owner = np.unique(users[rows], return_inverse=True)[1]
    if split in MOST:
        owner = numbered_cells(adaptive_cells(coordinates[rows], MOST[split]), LEAST_SHARE * MOST[split])
        rows, owner = rows[owner >= 0], owner[owner >= 0]
        if not len(rows):
            raise DataError(f"split: no cell has {LEAST_SHARE * MOST[split]:g} images or more")
    tested = _annotated(VALIDATION)
    test_rows = np.flatnonzero(np.isin(tested.labels, kinds))
    if not len(test_rows):
        raise DataError("val2017.json has no image of the classes that were kept of train2017.json")
    labels, test_labels = (
        torch.from_numpy(np.searchsorted(kinds, of)) for of in (taken.labels[rows], tested.labels[test_rows])
    )
    train = Split(torch.arange(len(rows)), labels, owner, coordinates[rows])
    test = Split(torch.arange(len(rows), len(rows) + len(test_rows)), test_labels)
    files = [taken.files[row] for row in rows] + [tested.files[row] for row in test_rows]
    return files, train, test, len(kinds)


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


@dataclass(frozen=True, eq=False)
class _Annotated:
    """Images with their ids, files and classes."""

    images: list[int]
    files: list[str]
    labels: npt.NDArray[np.int64]


def _paths(name: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for folder in FOLDERS)


def _file(name: str) -> Path:
    return find(*_paths(name), source=SOURCE)


WANTED = tuple(Wanted(_paths(name), SOURCE, 'source = "raw"') for name in (TRAIN, VALIDATION, LOCATIONS))


def _annotated(name: str) -> _Annotated:
    path = _file(name)
    with _as_expected(path):
        content = read_json(path)
        files = {int(image["id"]): str(image["file_name"]) for image in content["images"]}
        images = [int(note["image_id"]) for note in content["annotations"]]
        labels = np.array([int(note["category_id"]) for note in content["annotations"]], dtype=np.int64)
        return _Annotated(images, [files[image] for image in images], labels)


def _users_and_coordinates(images: Sequence[int]) -> tuple[Indices, npt.NDArray[np.float64]]:
    """Read the user and the coordinates of images; −1 and NaN where they are not known."""
    path = _file(LOCATIONS)
    with _as_expected(path):
        about = {int(entry["id"]): entry for entry in read_json(path)}
        found = [about.get(image, _UNKNOWN) for image in images]
        users = [-1 if entry["user_id"] is None else int(entry["user_id"]) for entry in found]
        coordinates = np.array([[entry["lat"], entry["lon"]] for entry in found], dtype=np.float64)
    coordinates[np.isnan(coordinates).any(axis=1)] = np.nan
    if (np.abs(coordinates) > [90, 180]).any():
        raise DataError(
            f"{path}: a latitude is not between −90 and 90 degrees, or a longitude not between −180 and 180"
        )
    return np.array(users, dtype=np.int64), coordinates


_UNKNOWN: dict[str, Any] = {"user_id": None, "lat": None, "lon": None}


@contextmanager
def _as_expected(path: Path) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: is not a file of iNaturalist 2017: {type(error).__name__}: {error}") from None
