"""Files that may be packed with gzip, bzip2 or xz, told by their first bytes."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from fedquilt.errors import DataError

_CHUNK = 2**20


@contextmanager
def unpacked(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, packed or not, to read its content; what goes wrong in reading is a DataError.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "a.txt"
    ...     _ = path.write_bytes(gzip.compress(b"content"))
    ...     with unpacked(path) as file:
    ...         file.read()
    b'content'
    """
    try:
        with path.open("rb") as file:
            first = file.read(6)
        with _open(path, first) as file:
            yield file
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error


def _open(path: Path, first: bytes) -> IO[bytes]:
    if first.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.open(path))
    if first.startswith(b"BZh"):
        return cast(IO[bytes], bz2.open(path))
    if first == b"\xfd7zXZ\x00":
        return cast(IO[bytes], lzma.open(path))
    return path.open("rb")


def read_unpacked(path: Path, limit: int) -> bytes:
    """Read a file's content of at most `limit` bytes, however it is packed."""
    with unpacked(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise DataError(f"{path}: has more than {limit:,} bytes, unpacked; the published file is no larger than that")
    return content


def parts_unpacked(path: Path, limit: int) -> Iterator[bytes]:
    """Yield a file's content, however it is packed, a part at a time; more than `limit` bytes are refused."""
    size = 0
    with unpacked(path) as file:
        while part := file.read(_CHUNK):
            size += len(part)
            if size > limit:
                raise DataError(f"{path}: has more than {limit:,} bytes, unpacked")
            yield part
