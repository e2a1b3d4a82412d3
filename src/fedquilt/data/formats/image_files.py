"""Images that are files in a folder, and folders that are named for the classes of the images in them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

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
        """Note where the files are; none is opened."""
        self.folder = folder
        self.advice = advice
        self.within = None if within is None else tuple(within) or (folder,)
        # One array of bytes: the workers of a forked engine share it, where a list would be copied page by page.
        self._names = np.array([os.fsencode(name) for name in names])

    def __repr__(self) -> str:
        """Say which files they are, wherever they lie."""
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
    """Return the paths of all images in the folders of a folder, `oak/1.jpg` say, in order, and the folders' names.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     for path in ("oak/2.jpg", "oak/1.JPG", "elm/3.png", "elm/notes.txt"):
    ...         Path(name, path).parent.mkdir(exist_ok=True)
    ...         Path(name, path).touch()
    ...     class_folders(Path(name))
    (['elm/3.png', 'oak/1.JPG', 'oak/2.jpg'], ['elm', 'oak', 'oak'])
    """
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
