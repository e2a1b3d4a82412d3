"""Landmarks-User-160k: photographs of 2,028 landmarks by the people who took them.

Hsu, Qi and Brown 2020, "Federated Visual Classification with Real-World Data Distribution", section 4.2, from the images
of Weyand et al. 2020, "Google Landmarks Dataset v2". Published splits are the authors' (`landmarks-user-160k`) or, in
`landmarks`, TensorFlow Federated's smaller one of 203 landmarks, known as gld23k (`mini_gld_train_split.csv` and
`mini_gld_test.csv`). Images are found in `landmarks/train`, where the first three letters of an id are folders
(`a/b/c/abc….jpg`), or all together in `landmarks/images`. The raw source is in `landmarks_raw`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from fedquilt.base.arguments import Seed, Size
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import datasets
from fedquilt.data.data import Data
from fedquilt.data.fetch.by_hand import Wanted, by_hand
from fedquilt.data.fetch.folders import find, folder_for
from fedquilt.data.fetch.published_counts import COUNTS
from fedquilt.data.formats.image_files import ImageFiles
from fedquilt.data.formats.images import Ahead, Images, Scale, image_data
from fedquilt.data.sets.landmarks_raw import WANTED, read_raw
from fedquilt.data.sets.published_splits import DIGESTS, PublishedSplits

CLASSES = {"160k": 2_028, "23k": 203}
FILES = {"160k": ("federated_train.csv", "test.csv"), "23k": ("mini_gld_train_split.csv", "mini_gld_test.csv")}
FOLDERS = {"160k": ("landmarks-user-160k", "landmarks/landmarks-user-160k"), "23k": ("landmarks", ".")}
SOURCES = {
    "160k": "It is in landmarks-user-160k.zip at https://github.com/google-research/google-research/tree/master/"
    "federated_vision_datasets.",
    "23k": "TensorFlow Federated's simulation.datasets.gldv2 names where it is.",
}
TOGETHER, APART = "images", "train"
IMAGE_SOURCE = (
    "The images are those of Google Landmarks v2's train set (https://github.com/cvdfoundation/google-landmark)"
)


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
        images, train, test, classes = read_raw(seed)
    else:
        train_file, test_file = (find(*_paths(split, part), source=SOURCES[split]) for part in FILES[split])
        found = PublishedSplits.read(train_file, test_file, CLASSES[split], "user_id", check)
        found.warn_if_different(name, COUNTS["landmarks"][split])
        images, train, test, classes = found.images, found.train, found.test, found.classes
    together = (home / TOGETHER).is_dir()
    names = [
        f"{TOGETHER}/{image}.jpg" if together else f"{APART}/{'/'.join(image[:3])}/{image}.jpg" for image in images
    ]
    advice = f"{IMAGE_SOURCE}; unpack them in {home / APART}."
    within = [home, home / TOGETHER, home / APART]  # which may be links to another disk
    files = ImageFiles(home, names, advice, within)
    return image_data(Data(name, train, test, classes), Images(files, size, scale, cache), augment, ahead)


def _paths(split: str, name: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}".removeprefix("./") for folder in FOLDERS[split])


by_hand(
    "landmarks",
    *(Wanted(_paths("160k", name), SOURCES["160k"]) for name in FILES["160k"]),
    *(Wanted(_paths("23k", name), SOURCES["23k"], 'split = "23k"', DIGESTS) for name in FILES["23k"]),
    *WANTED,
    Wanted((f"landmarks/{TOGETHER}", f"landmarks/{APART}"), IMAGE_SOURCE),
)
