"""Where images come from: files in a folder, and rows of data sets of the Hugging Face library.

Folders may be named for the classes of the images in them. A row has the bytes of an image file, or the path of one; the
library maps its tables from disk: what is not looked at is not in memory.
"""

from __future__ import annotations

import hashlib
import io
import os
from bisect import bisect_right
from collections.abc import Sequence
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fedquilt.base.errors import DataError, ExampleError
from fedquilt.data.files import is_inside, open_file

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
"""Of the files in a folder, those that are images, by name; what is in them decides how they are read."""


class ImageFiles:
    """Image files by number: `names` are paths in `folder`; `advice` ends the message of a file that is missing.

    Files must lie in one of the folders `within`, wherever links lead: in `folder` unless given. None: anywhere.
    """

    def __init__(
        self, folder: Path, names: Sequence[str], advice: str = "", within: Sequence[Path] | None = ()
    ) -> None:
        self.folder = folder
        self.advice = advice
        self.within = None if within is None else tuple(within) or (folder,)
        # One array of bytes: the workers of a forked engine share it, where a list would be copied page by page.
        self._names = np.array([os.fsencode(name) for name in names])

    def __repr__(self) -> str:
        digest = hashlib.sha256(b"\0".join(self._names.tolist())).hexdigest()
        return f"ImageFiles({len(self._names)} files, names={digest})"

    def path(self, number: int) -> Path:
        """Return the path of a file."""
        return self.folder / os.fsdecode(bytes(self._names[number]))

    def name(self, number: int) -> str:
        """Name a file by its path."""
        return str(self.path(number))

    def key(self, number: int) -> str:
        """Tell a file by its path, length and time of change."""
        path = self._allowed(number)
        try:
            about = path.stat()
        except OSError as error:
            raise self._cannot(path, error) from None
        return f"{path.absolute()}\n{about.st_size}\n{about.st_mtime_ns}"

    def open(self, number: int) -> BinaryIO:
        """Open a file."""
        path = self._allowed(number)
        try:
            return open_file(path)
        except OSError as error:
            raise self._cannot(path, error) from None
        except DataError as error:
            raise ExampleError(str(error)) from None

    def _allowed(self, number: int) -> Path:
        path = self.path(number)
        if self.within is not None and not is_inside(path, self.within):
            raise ExampleError(f"{path}: leads out of {self.folder}; only images in that folder are read")
        return path

    def _cannot(self, path: Path, error: OSError) -> ExampleError:
        if isinstance(error, FileNotFoundError):
            return ExampleError(f"{path}: there is no such image file{self.advice and f'. {self.advice}'}")
        return ExampleError(f"{path}: the image file cannot be opened: {error.strerror or error}")


def class_folders(folder: Path) -> tuple[list[str], list[str]]:
    """Return the paths of all images in the folders of a folder, `oak/1.jpg` say, in order, and the folders' names."""
    paths, labels = [], []
    for kind in sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith(".")):
        images = sorted(file.name for file in kind.iterdir() if file.suffix.lower() in ENDINGS)
        if not images:
            raise DataError(f"{kind}: has no images; without a `table`, every subfolder of {folder} is a class")
        paths += [f"{kind.name}/{name}" for name in images]
        labels += [kind.name] * len(images)
    if not paths:
        raise DataError(f"{folder}: has no folders of images; set `table`, or make one subfolder per class")
    return paths, labels


class ImageRows:
    """Images by number, through one split after the other; `splits` are names for messages, and columns not decoded.

    Images that are files must lie in the folder `within`, if one is given.
    """

    def __init__(self, column: str, splits: Sequence[tuple[str, Any]], within: Path | None = None) -> None:
        self.within = within
        self.column = column
        self.splits = list(splits)
        self._ends = list(accumulate(len(split) for _, split in splits))

    def __repr__(self) -> str:
        """Say which images they are, by what the library calls a fingerprint: it is kept with the data."""
        parts = [f"{len(split)} rows of {split._fingerprint}" for _, split in self.splits]
        return f"ImageRows({self.column!r}, {', '.join(parts)})"

    def name(self, number: int) -> str:
        """Name an image by its split and row."""
        index, row = self._index(number)
        return f"{self.splits[index][0]}: row {row + 1}, column '{self.column}'"

    def key(self, number: int) -> str:
        """Tell an image by its content."""
        with self.open(number) as file:
            return blake2b(file.read(), digest_size=32).hexdigest()

    def open(self, number: int) -> BinaryIO:
        """Open an image."""
        index, row = self._index(number)
        held = self.splits[index][1][row][self.column]
        if held is None:
            raise ExampleError(f"{self.name(number)}: has no image")
        if held["bytes"] is not None:
            return io.BytesIO(held["bytes"])
        try:
            path = Path(held["path"])
            if self.within is not None and not is_inside(path, [self.within]):
                raise ExampleError(
                    f"{self.name(number)}: the image {path} is outside {self.within}; if you trust the data set, set "
                    "outside = true"
                )
            return open_file(path)
        except ExampleError:
            raise
        except (OSError, TypeError, ValueError, DataError) as error:
            raise ExampleError(f"{self.name(number)}: the image {held['path']} cannot be opened: {error}") from None

    def _index(self, number: int) -> tuple[int, int]:
        index = bisect_right(self._ends, number)
        return index, number - (self._ends[index - 1] if index else 0)
