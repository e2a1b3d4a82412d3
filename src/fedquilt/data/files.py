"""Files of data, opened and read with care: none of them is trusted.

- Only regular files are opened, and of those that a table names, only those in its folders: a pipe or a device would be
  waited for, or read without end, and a table could name any file of the machine.
- Content may be packed with gzip, bzip2 or xz, told by its first bytes. A packed file of a few kilobytes can unpack to any
  size: it is read in parts, up to what the reader says that it can be at most or else what memory allows (see `memory`).
- Published files are known by their SHA-256 or, where that is what was published, their MD5.
"""

from __future__ import annotations

import bz2
import functools
import gzip
import hashlib
import io
import lzma
import os
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, AnyStr, BinaryIO, cast

from fedquilt.base.errors import DataError
from fedquilt.base.memory import allowed, in_words, the_limit

Bytes = bytes | bytearray | memoryview

ADVICE = "download it again, or use it anyway with `check = false`"

LINE_SHARE = 64
"""One line, which is one row of a table, may take one part in so many of what reading may take."""

_CHUNK = 2**20
_AT_ONCE = 2**26
"""Bytes that are read in one piece, at most: a header that asks for more lies."""

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading bytes; anything else is refused with a DataError that says what it is.

    That there is no such file, or that it may not be read, is an OSError, as from `open`.

    >>> open_file(Path("/dev/null"))
    Traceback (most recent call last):
    fedquilt.base.errors.DataError: /dev/null: is a device, but must be a regular file
    """
    require_regular(path)
    handle = os.open(path, _FLAGS)
    try:
        require_regular(path, handle)  # it may have become another since
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def require_regular(path: Path, handle: int | None = None) -> int:
    """Return the size of a regular file, by its open handle or for libraries that open files; refuse everything else."""
    about = path.stat() if handle is None else os.fstat(handle)
    if not stat.S_ISREG(about.st_mode):
        kind = _KINDS.get(stat.S_IFMT(about.st_mode), "no file")
        raise DataError(f"{path}: is {kind}, but must be a regular file")
    return about.st_size


def expanded(path: Path) -> Path:
    """Put the home folder in place of `~`; a name after it that is no user's is left as it is, and will not be found.

    >>> expanded(Path("~nosuchuser/data.csv")).as_posix(), expanded(Path("~")) == Path.home()
    ('~nosuchuser/data.csv', True)
    """
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def is_inside(path: Path, folders: Iterable[Path]) -> bool:
    """Say whether a file lies in one of some folders, or below, once links are followed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     home = Path(name)
    ...     (home / "link").symlink_to("/")
    ...     is_inside(home / "a.png", [home]), is_inside(home / "../a.png", [home]), is_inside(home / "link/a.png", [home])
    (True, False, False)
    """
    # Folders are many times fewer than files: each is followed once.
    real = os.path.realpath(path) if path.is_symlink() else f"{_real(str(path.parent))}{os.sep}{path.name}"
    return any(real.startswith(_real(str(folder)).rstrip(os.sep) + os.sep) for folder in folders)


@functools.lru_cache(maxsize=2**14)
def _real(folder: str) -> str:
    return os.path.realpath(folder)


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
            raise DataError(f"{self._path}: damaged: it claims a block of {in_words(len(buffer))}")
        count = cast(int, self._file.readinto(buffer))  # type: ignore[attr-defined]
        if self._file.tell() > self._most:
            raise DataError(f"{self._path}: has more than {self._most:,} bytes when decompressed; {self._why}")
        return count


@contextmanager
def unpacked(path: Path, most: int | None = None) -> Iterator[BinaryIO]:
    """Open a file, packed or not, to read at most so many bytes of content; what goes wrong in reading is a DataError.

    Without `most`, a packed file may hold as much as reading may take of memory, one that is not packed any amount.
    """
    try:
        with open_file(path) as packed, _unpacking(packed) as file:
            if most is None and file is packed:
                yield packed
                return
            limit, why = most, "the published file is no larger"
            if limit is None:
                limit = allowed()
                why = f"{the_limit(limit)}, or decompress the file"
            yield cast(BinaryIO, io.BufferedReader(_Bounded(path, file, limit, why), 2**16))
    except (EOFError, OSError, MemoryError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error


def _unpacking(file: BinaryIO) -> BinaryIO:
    first = file.read(6)
    file.seek(0)
    for begins, opens in ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\x00", lzma.open)):
        if first.startswith(begins):
            return cast(BinaryIO, opens(file))
    return file


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
    """Yield the lines of a file, packed or not, none of which may be so long that it fills the memory."""
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


def require_digest(path: Path, parts: Iterable[Bytes], wanted: str | None, advice: str = ADVICE) -> None:
    """Raise a DataError unless the content read from a file, part by part, has the digest; None asks for nothing.

    >>> require_digest(Path("a.bin"), [b"ab", b"c"], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    >>> require_digest(Path("a.bin"), [b"abc"], "900150983cd24fb0d6963f7d28e17f72")
    >>> require_digest(Path("a.bin"), [b"abd"], "900150983cd24fb0d6963f7d28e17f72")
    Traceback (most recent call last):
    fedquilt.base.errors.DataError: a.bin: the content differs from the published file: MD5 4911..., expected 9001...;
    download it again, or use it anyway with `check = false`
    """
    if wanted is None:
        return
    name, digest = ("MD5", hashlib.md5(usedforsecurity=False)) if len(wanted) == 32 else ("SHA-256", hashlib.sha256())
    for part in parts:
        digest.update(part)
    if digest.hexdigest() != wanted:
        found = f"{name} {digest.hexdigest()}"
        different = f"{path}: the content differs from the published file: {found}, expected {wanted}"
        raise DataError(different + (advice and f"; {advice}"))
