"""Landmarks-User-160k: photographs of 2,028 landmarks by the people who took them.

Hsu, Qi and Brown 2020, "Federated Visual Classification with Real-World Data Distribution", section 4.2, from the images
of Weyand et al. 2020, "Google Landmarks Dataset v2". Published splits are the authors' (`landmarks-user-160k`) or, in
`landmarks`, TensorFlow Federated's smaller one of 203 landmarks, known as gld23k (`mini_gld_train_split.csv` and
`mini_gld_test.csv`), whose documentation counts no test images. Images are found in `landmarks/train`, where the first
three letters of an id are folders (`a/b/c/abc….jpg`), or all together in `landmarks/images`.

The raw source is the tables of Google Landmarks v2. The paper: of the images of GLD-v2-clean, "every landmark to have at
least 30 images and be visited by at least 10 users", "every user to have contributed at least 30 images that depict 5 or
more landmarks". Each filter can undo the other, so that they are applied in turn until both hold; what is left is the
largest set for which they do, in whatever order one filters. The test split "is created from the leftover images … whose
authors do not overlap with those in the train split", 10 images a landmark where there are so many. `train_clean.csv` has
the columns `landmark_id` and `images` (ids, separated by spaces), `train_attribution.csv` has `id` and `author` among
others. Images without an author are left out. Which test images the authors drew is not known.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from fedquilt.base.arguments import Seed, Size
from fedquilt.base.errors import DataError, SpecError, listed
from fedquilt.base.registry import datasets
from fedquilt.base.rng import generator
from fedquilt.base.types import Indices
from fedquilt.data.data import Data, Split
from fedquilt.data.fetch.folders import folder_for
from fedquilt.data.fetch.published import Counts, Wanted, by_hand
from fedquilt.data.files import lines
from fedquilt.data.formats.csv_file import NO_NAMES, NO_ROWS, csv_file
from fedquilt.data.formats.image_sources import ImageFiles
from fedquilt.data.formats.images import Ahead, Images, Scale, image_data
from fedquilt.data.labels import numbered
from fedquilt.data.sets.published_splits import DIGESTS, PublishedSplits

COUNTS = {
    "160k": Counts("Hsu 2020", 1_262, 164_172, 19_526, 2_028, of="images"),
    "23k": Counts("TensorFlow Federated", 233, 23_080, None, 203, of="images", when='split = "23k"'),
}
SOURCES = {
    "160k": "It is in landmarks-user-160k.zip at https://github.com/google-research/google-research/tree/master/"
    "federated_vision_datasets.",
    "23k": "TensorFlow Federated's simulation.datasets.gldv2 names where it is.",
}
SPLITS = {
    "160k": [
        Wanted((f"landmarks-user-160k/{name}", f"landmarks/landmarks-user-160k/{name}"), SOURCES["160k"])
        for name in ("federated_train.csv", "test.csv")
    ],
    "23k": [
        Wanted((f"landmarks/{name}", name), SOURCES["23k"], 'split = "23k"', DIGESTS)
        for name in ("mini_gld_train_split.csv", "mini_gld_test.csv")
    ],
}
RAW_SOURCE = "It is a table of Google Landmarks v2: https://github.com/cvdfoundation/google-landmark"
CLEAN, ATTRIBUTION = (
    Wanted.below(("landmarks", "landmarks/metadata"), name, RAW_SOURCE, 'source = "raw"')
    for name in ("train_clean.csv", "train_attribution.csv")
)
TOGETHER, APART = "images", "train"
IMAGE_SOURCE = (
    "The images are those of Google Landmarks v2's train set (https://github.com/cvdfoundation/google-landmark)"
)

by_hand(
    "landmarks",
    [
        *SPLITS["160k"],
        *SPLITS["23k"],
        *(CLEAN, ATTRIBUTION),
        Wanted((f"landmarks/{TOGETHER}", f"landmarks/{APART}"), IMAGE_SOURCE),
    ],
    [*COUNTS.values()],
)

IMAGES, USERS, LANDMARKS, TESTED = 30, 10, 5, 10
"""What the paper asks of a landmark and of a user, and the test images of a landmark."""


@datasets.register
def landmarks(
    split: Literal["160k", "23k"] = "160k",
    source: Literal["published", "raw"] = "published",
    size: Size = 224,
    seed: Seed = 0,
    scale: Scale = "imagenet",
    augment: bool = True,
    cache: Path | None = None,
    ahead: Ahead = 2,
    check: bool = True,
) -> Data:
    """Photographs of 2,028 landmarks by 1,262 users (Hsu 2020), or the smaller gld23k.

    - `split`: "160k" is the paper's, "23k" the 203 landmarks and 233 users of TensorFlow Federated's gld23k.
    - `source`: "published" reads the published split files, "raw" makes the paper's split anew from the tables of Google
      Landmarks v2; `seed` decides which images are then tested on.
    - `check`: refuse split files whose digests differ from the published ones, where there are any.

    Labels and clients can be looked at without the image files, which are read when they are needed.

    >>> data = landmarks()  # doctest: +SKIP
    >>> data, len(set(data.train.ids))  # doctest: +SKIP
    (Data(landmarks 160k: 164172 to train, 19526 to test, 2028 classes), 1262)
    """
    name, home = f"landmarks {split}", folder_for("landmarks")
    if source == "raw" and split != "160k":
        raise SpecError("split: only 160k is made from raw tables; how gld23k was chosen is not published")
    if source == "raw":
        images, train, test, classes = _read_raw(seed)
    else:
        published = COUNTS[split]
        assert published.classes is not None
        train_file, test_file = (wanted.find() for wanted in SPLITS[split])
        found = PublishedSplits.read(train_file, test_file, published.classes, "user_id", check)
        found.warn_if_different(name, published)
        images, train, test, classes = found.images, found.train, found.test, found.classes
    together = (home / TOGETHER).is_dir()
    names = [
        f"{TOGETHER}/{image}.jpg" if together else f"{APART}/{'/'.join(image[:3])}/{image}.jpg" for image in images
    ]
    within = [home, home / TOGETHER, home / APART]  # which may be links to another disk
    files = ImageFiles(home, names, f"{IMAGE_SOURCE}; unpack them in {home / APART}.", within)
    return image_data(Data(name, train, test, classes), Images(files, size, scale, cache), augment, ahead)


def _read_raw(seed: int) -> tuple[list[str], Split, Split, int]:
    """Return the ids of all images, the splits whose examples are positions in that list, and the number of classes."""
    images, landmarks = _clean()
    authors = _authors(images)
    kept = fixed_point(landmarks, authors)
    if not kept.any():
        raise DataError(
            f"train_clean.csv: no landmark is left. A landmark needs {IMAGES} images and {USERS} users, and a user needs "
            f"{IMAGES} images of {LANDMARKS} such landmarks"
        )
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


def _clean() -> tuple[list[str], Indices]:
    """Read which images show which landmark."""
    path = CLEAN.find()
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
    path = ATTRIBUTION.find()
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
