"""Splits published as CSV files, which name images by their ids; and whether they are those that were published.

Hsu, Qi and Brown 2020, "Federated Visual Classification with Real-World Data Distribution": the authors' files have the
columns `user_id`, `image_id` and `class`, those of a test split the last two. TensorFlow Federated's variant has a column
for every split instead of `user_id`, with "NA" for images that are not in it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from fedquilt.base.errors import DataError
from fedquilt.base.memory import allowed
from fedquilt.data.data import Split
from fedquilt.data.fetch.published import Counts, check_digest
from fedquilt.data.files import ADVICE
from fedquilt.data.formats.csv_file import TextColumns, read_columns, whole_numbers
from fedquilt.data.labels import numbered

NOBODY = "NA"

# MD5 of files whose digests TensorFlow Federated publishes, in its simulation.datasets.inaturalist and gldv2.
DIGESTS = {
    "iNaturalist_train.csv": "63d5a41699434bc2b13f5853f3764c18",
    "iNaturalist_test.csv": "bcf08a5a740ee76dac4e5af668081891",
    "mini_gld_train_split.csv": "9fd62cf79a67046fdd673d3a0ac52841",
    "mini_gld_test.csv": "298e9d19d66357236f66fe8e22920933",
}


@dataclass(frozen=True, eq=False)
class PublishedSplits:
    """Published splits: the ids of all images, and splits whose examples are positions in that list."""

    images: list[str]
    train: Split
    test: Split

    @classmethod
    def read(cls, train: Path, test: Path, classes: int, client: str, check: bool = True) -> PublishedSplits:
        """Read two CSV files; `client` is the name of the column that says whose an image is.

        With `check`, files whose digests are published must have them.
        """
        for path in (train, test) if check else ():
            if path.name in DIGESTS:
                check_digest(path, DIGESTS[path.name], allowed(), advice=ADVICE)
        columns = read_columns(train, ["image_id", "class", client])
        held = np.array([row for row, name in enumerate(columns[client]) if name != NOBODY], dtype=np.int64)
        if not len(held):
            raise DataError(f"{train}: no image has a client in column {client!r}")
        tested = read_columns(test, ["image_id", "class"])
        labels = torch.from_numpy(_labels(train, columns, classes)[held])
        ids, _ = numbered([columns[client][row] for row in held])
        images = [columns["image_id"][row] for row in held] + tested["image_id"]
        return cls(
            images,
            Split(torch.arange(len(held)), labels, ids),
            Split(torch.arange(len(held), len(images)), torch.from_numpy(_labels(test, tested, classes))),
        )

    @property
    def classes(self) -> int:
        """The number of classes, by the largest."""
        return int(max(self.train.y.max(), self.test.y.max())) + 1

    def warn_if_different(self, name: str, counts: Counts) -> None:
        """Warn if there are not as many of all as were published, and say how it differs."""
        assert self.train.ids is not None
        found = {
            "classes": (len(np.unique(self.train.y.numpy())), counts.classes),
            "training images": (len(self.train), counts.train),
            "test images": (len(self.test), counts.test),
            "clients": (len(np.unique(self.train.ids)), counts.clients),
        }
        different = [
            f"{here:,} {what} instead of {published:,}"
            for what, (here, published) in found.items()
            if published not in (None, here)
        ]
        if different:
            warnings.warn(
                f"{name} differs from what was published: {', '.join(different)}", RuntimeWarning, stacklevel=4
            )


def _labels(path: Path, columns: TextColumns, classes: int) -> npt.NDArray[np.int64]:
    labels = whole_numbers(path, "class", columns["class"])
    if labels.max() >= classes:
        raise DataError(f"{path}: a class is {labels.max()}; with {classes} classes they go from 0 to {classes - 1}")
    return labels
