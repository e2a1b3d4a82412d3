"""Decoded images on disk, one NumPy file each, so that they are decoded once and not in every round."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedquilt.base.errors import DataError
from fedquilt.base.paths import expanded
from fedquilt.data.files import require_regular

Pixels = npt.NDArray[np.uint8]
"""An image: (height, width, channels), with one channel or three."""


@dataclass(frozen=True)
class ImageCache:
    """A folder of decoded images, which several processes may fill at once.

    An image is found by a key, which is another once the image has changed. A damaged entry counts as none. Where the
    disk is full, nothing is added.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cache = ImageCache.at(Path(folder) / "cache")
    ...     cache.put("a.jpg", np.zeros((4, 5, 3), dtype=np.uint8))
    ...     cache.get("a.jpg").shape, cache.get("b.jpg")
    ((4, 5, 3), None)
    """

    folder: Path

    @classmethod
    def at(cls, folder: Path) -> ImageCache:
        """Use a folder, which is made if there is none."""
        try:
            expanded(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"cache: the folder {folder} cannot be created: {error.strerror}") from None
        return cls(expanded(folder).absolute())

    def get(self, key: str) -> Pixels | None:
        """Return an image from the cache, if it is there."""
        try:
            entry = self._entry(key)
            require_regular(entry)
            # A mapping, and not a copy: its length is checked against the file's before anything is read.
            found = np.load(entry, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError, DataError):
            return None
        return (
            found if found.dtype == np.uint8 and found.ndim == 3 and found.shape[2] in (1, 3) and found.size else None
        )

    def put(self, key: str, pixels: Pixels) -> None:
        """Add an image: written aside and renamed, so that no one ever reads half of it."""
        with suppress(OSError):
            entry = self._entry(key)
            entry.parent.mkdir(exist_ok=True)
            handle, aside = tempfile.mkstemp(dir=entry.parent, suffix=".part")
            try:
                with os.fdopen(handle, "wb") as file:
                    np.save(file, pixels, allow_pickle=False)
                Path(aside).replace(entry)
            except OSError:
                Path(aside).unlink(missing_ok=True)

    def _entry(self, key: str) -> Path:
        digest = hashlib.blake2b(os.fsencode(key), digest_size=20).hexdigest()
        return self.folder / digest[:2] / f"{digest[2:]}.npy"
