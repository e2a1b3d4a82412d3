"""Content of files that may be packed with gzip, bzip2 or xz, told by their first bytes; never more than a limit of it.

A packed file of a few kilobytes can unpack to any size. It is read in parts, and reading ends at the limit: what the reader
says that it can be at most or else what memory allows (see `memory`).
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, AnyStr, BinaryIO, cast

from fedquilt.base.errors import DataError
from fedquilt.base.memory import allowed, in_words, the_limit
from fedquilt.data.files import open_file

_CHUNK = 2**20
_AT_ONCE = 2**26
"""Bytes that are read in one piece, at most: a header that asks for more lies."""

LINE_SHARE = 64
"""One line, which is one row of a table, may take one part in so many of what reading may take."""


class _Bounded(io.RawIOBase):
    """A file of which only so many bytes can be read; more are a DataError."""

    def __init__(self, path: Path, file: IO[bytes], most: int, why: str) -> None:
        self._path, self._file, self._most, self._why = path, file, most, why

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: Any, /) -> int:
        if len(buffer) > _AT_ONCE:
            raise DataError(f"{self._path}: damaged: asks for {in_words(len(buffer))} in one piece")
        count = cast(int, self._file.readinto(buffer))  # type: ignore[attr-defined]
        if self._file.tell() > self._most:
            raise DataError(f"{self._path}: has more than {self._most:,} bytes when decompressed; {self._why}")
        return count


@contextmanager
def unpacked(path: Path, most: int | None = None) -> Iterator[BinaryIO]:
    """Open a file, packed or not, to read at most so many bytes of content; what goes wrong in reading is a DataError.

    Without `most`, a packed file may hold as much as reading may take of memory, one that is not packed any amount.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "a.txt"
    ...     _ = path.write_bytes(gzip.compress(b"content"))
    ...     with unpacked(path) as file:
    ...         file.read()
    ...     with unpacked(path, most=3) as file:
    ...         file.read()
    Traceback (most recent call last):
    fedquilt.base.errors.DataError: ...a.txt: has more than 3 bytes when decompressed; the published file is no larger
    """
    try:
        with open_file(path) as packed, _unpacking(packed) as file:
            if most is not None:
                yield _bounded(path, file, most, "the published file is no larger")
            elif file is packed:
                yield packed
            else:
                limit = allowed()
                yield _bounded(path, file, limit, f"{the_limit(limit)}, or decompress the file")
    except (EOFError, OSError, MemoryError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error


def _unpacking(file: BinaryIO) -> BinaryIO:
    first = file.read(6)
    file.seek(0)
    if first.startswith(b"\x1f\x8b"):
        return cast(BinaryIO, gzip.open(file))
    if first.startswith(b"BZh"):
        return cast(BinaryIO, bz2.open(file))
    if first == b"\xfd7zXZ\x00":
        return cast(BinaryIO, lzma.open(file))
    return file


def _bounded(path: Path, file: IO[bytes], most: int, why: str) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(_Bounded(path, file, most, why), 2**16))


def read_unpacked(path: Path, limit: int) -> bytes:
    """Read a file's content of at most `limit` bytes, however it is packed."""
    return b"".join(parts_unpacked(path, limit))


def parts_unpacked(path: Path, limit: int) -> Iterator[bytes]:
    """Yield a file's content, however it is packed, a part at a time; more than `limit` bytes are refused."""
    with unpacked(path, limit) as file:
        while part := file.read(_CHUNK):
            yield part


def text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file in UTF-8 with their ends, be they those of Unix, Windows or an old Macintosh."""
    with unpacked(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
        yield from _bounded_lines(path, text)


def lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, packed or not, none of which may be so long that it fills the memory.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "a.txt"
    ...     _ = path.write_bytes(b"one\\ntwo")
    ...     list(lines(path))
    [b'one\\n', b'two']
    """
    with unpacked(path) as file:
        yield from _bounded_lines(path, file)


def _bounded_lines(path: Path, file: IO[AnyStr]) -> Iterator[AnyStr]:
    most = allowed() // LINE_SHARE
    number = 1
    while line := file.readline(most + 1):
        if len(line) > most:
            raise DataError(f"{path}: line {number} is too long; {the_limit(most, 'a line')}")
        yield line
        number += 1
