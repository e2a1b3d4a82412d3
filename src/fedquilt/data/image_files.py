"""Images that are files in a folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fedquilt.errors import ExampleError


class ImageFiles:
    """Image files by number: `names` are paths in `folder`; `advice` ends the message of a file that is missing."""

    def __init__(self, folder: Path, names: Sequence[str], advice: str = "") -> None:
        """Note where the files are; none is opened."""
        self.folder = folder
        self.advice = advice
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
        path = self.path(number)
        try:
            about = path.stat()
        except FileNotFoundError:
            raise self._missing(path) from None
        return f"{path.absolute()}\n{about.st_size}\n{about.st_mtime_ns}"

    def open(self, number: int) -> BinaryIO:
        """Open a file."""
        path = self.path(number)
        try:
            return path.open("rb")
        except FileNotFoundError:
            raise self._missing(path) from None

    def _missing(self, path: Path) -> ExampleError:
        return ExampleError(f"{path}: there is no such image file{self.advice and f'. {self.advice}'}")
