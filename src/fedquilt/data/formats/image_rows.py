"""Images that are in the rows of data sets of the Hugging Face library.

A row has the bytes of an image file, or the path of one. The library maps its tables from disk: what is not looked at is
not in memory.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Sequence
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

from fedquilt.base.errors import DataError, ExampleError
from fedquilt.data.files import is_inside, open_file


class ImageRows:
    """Images by number, through one split after the other; `splits` are names for messages, and columns not decoded.

    Images that are files must lie in the folder `within`, if one is given.
    """

    def __init__(self, column: str, splits: Sequence[tuple[str, Any]], within: Path | None = None) -> None:
        """Note where the images are; none is read."""
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
