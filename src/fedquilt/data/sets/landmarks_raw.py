"""Landmarks-User-160k, made from the tables of Google Landmarks v2.

Hsu, Qi and Brown 2020, "Federated Visual Classification with Real-World Data Distribution", section 4.2: of the images of
GLD-v2-clean, "every landmark to have at least 30 images and be visited by at least 10 users", "every user to have
contributed at least 30 images that depict 5 or more landmarks". Each filter can undo the other, so that they are applied
in turn until both hold; what is left is the largest set for which they do, in whatever order one filters. The test split
"is created from the leftover images … whose authors do not overlap with those in the train split", 10 images a landmark
where there are so many.

`train_clean.csv` has the columns `landmark_id` and `images` (ids, separated by spaces), `train_attribution.csv` has `id`
and `author` among others. Images without an author are left out. Which test images the authors drew is not known.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from fedquilt.base.errors import DataError, listed
from fedquilt.base.rng import generator
from fedquilt.base.types import Indices
from fedquilt.data.data import Split
from fedquilt.data.fetch.by_hand import Wanted
from fedquilt.data.fetch.folders import find
from fedquilt.data.formats.csv_file import NO_NAMES, NO_ROWS, csv_file
from fedquilt.data.numbered import numbered
from fedquilt.data.packed import lines

IMAGES, USERS, LANDMARKS, TESTED = 30, 10, 5, 10

FOLDERS = ("landmarks", "landmarks/metadata")
CLEAN, ATTRIBUTION = "train_clean.csv", "train_attribution.csv"
SOURCE = "It is a table of Google Landmarks v2: https://github.com/cvdfoundation/google-landmark"


def read_raw(seed: int) -> tuple[list[str], Split, Split, int]:
    """Return the ids of all images, the splits whose examples are places in that list, and the number of classes."""
    images, landmarks = _clean()
    authors = _authors(images)
    kept = fixed_point(landmarks, authors)
    if not kept.any():
        raise DataError(f"train_clean.csv: no landmark has {IMAGES} images of {USERS} users who have {IMAGES} each")
    train, test = np.flatnonzero(kept), rows_to_test(landmarks, authors, kept, TESTED, seed)
    if not len(test):
        raise DataError("train_clean.csv: no user outside the training split has images of its landmarks")
    kinds = np.unique(landmarks[train])
    labels, test_labels = (torch.from_numpy(np.searchsorted(kinds, landmarks[rows])) for rows in (train, test))
    ids = np.unique(authors[train], return_inverse=True)[1]
    return (
        [images[row] for row in (*train, *test)],
        Split(torch.arange(len(train)), labels, ids),
        Split(torch.arange(len(train), len(train) + len(test)), test_labels),
        len(kinds),
    )


def fixed_point(
    landmarks: Indices,
    authors: Indices,
    images: int = IMAGES,
    users: int = USERS,
    user_images: int = IMAGES,
    user_landmarks: int = LANDMARKS,
) -> npt.NDArray[np.bool_]:
    """Say which images stay, if every landmark needs so many images and users and every user so many of theirs.

    Authors below 0 are not known, and their images go.

    >>> landmarks, authors = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 0, 1, 0])
    >>> fixed_point(landmarks, authors, images=2, users=2, user_images=2, user_landmarks=2).tolist()
    [True, True, True, True, True, False]
    """
    kept = authors >= 0
    while True:
        before = int(kept.sum())
        kept &= _large(landmarks, authors, kept, images, users)
        kept &= _large(authors, landmarks, kept, user_images, user_landmarks)
        if int(kept.sum()) == before:
            return kept


def _large(of: Indices, by: Indices, kept: npt.NDArray[np.bool_], images: int, others: int) -> npt.NDArray[np.bool_]:
    """Say which images belong to one (of `of`) with enough images, and enough different ones of `by`."""
    kinds = max(int(of.max()) + 1, 1)
    pairs = np.unique(np.stack([of[kept], by[kept]]), axis=1)
    enough = np.bincount(of[kept], minlength=kinds) >= images
    enough &= np.bincount(pairs[0], minlength=kinds) >= others
    return enough[of]


def rows_to_test(landmarks: Indices, authors: Indices, kept: npt.NDArray[np.bool_], most: int, seed: int) -> Indices:
    """Return which images are tested on: up to `most` of every landmark, by authors who have none in training."""
    free = ~kept & (authors >= 0) & np.isin(landmarks, landmarks[kept]) & ~np.isin(authors, authors[kept])
    parts = [np.zeros(0, dtype=np.int64)]
    rows = np.flatnonzero(free)
    order = rows[np.argsort(landmarks[rows], kind="stable")]
    kinds, starts, counts = np.unique(landmarks[order], return_index=True, return_counts=True)
    for kind, start, count in zip(kinds, starts, counts, strict=True):
        parts.append(generator(seed, "landmarks test", int(kind)).permutation(order[start : start + count])[:most])
    return np.sort(np.concatenate(parts))


def _paths(name: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for folder in FOLDERS)


def _find(name: str) -> Path:
    return find(*_paths(name), source=SOURCE)


WANTED = tuple(Wanted(_paths(name), SOURCE, 'source = "raw"') for name in (CLEAN, ATTRIBUTION))


def _clean() -> tuple[list[str], Indices]:
    """Read which images show which landmark."""
    path = _find(CLEAN)
    images: list[str] = []
    landmarks: list[int] = []
    try:
        rows = (line.decode().strip() for line in lines(path))
        first = next(rows, "")
        if not first:
            raise DataError(f"{path}: {NO_NAMES}")
        if first != "landmark_id,images":
            raise DataError(f"{path}: its first line must be landmark_id,images")
        # A landmark has more ids than Python's CSV reader takes in a field.
        for row in rows:
            landmark, _, ids = row.partition(",")
            of_landmark = ids.split()
            images += of_landmark
            landmarks += [int(landmark)] * len(of_landmark)
    except ValueError as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    if not images:
        raise DataError(f"{path}: {NO_ROWS} that have images")
    kinds = np.unique(np.array(landmarks, dtype=np.int64), return_inverse=True)[1]
    return images, kinds


def _authors(images: list[str]) -> Indices:
    """Number the authors of images; −1 where there is none."""
    path = _find(ATTRIBUTION)
    wanted = dict.fromkeys(images, "")
    with csv_file(path) as (header, lines):
        if not {"id", "author"} <= set(header):
            raise DataError(f"{path}: has no columns 'id' and 'author'; its columns are {listed(header)}")
        image, author = header.index("id"), header.index("author")
        for _, row in lines:
            if len(row) > max(image, author) and row[image] in wanted:
                wanted[row[image]] = row[author].strip()
    names = [wanted[image] for image in images]
    return numbered(names, first=[""])[0] - 1
