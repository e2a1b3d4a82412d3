"""Which files of data may be opened: only regular ones, and of those that a table names, only those in its folders.

A pipe or a device in place of a file would be waited for, or read without end; a table could name any file of the machine.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from fedquilt.base.errors import DataError

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
        _require_regular(path, os.fstat(handle))  # it may have become another since
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def require_regular(path: Path) -> int:
    """Return the size of a regular file, for libraries that open files themselves; refuse everything else.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"abc"), file.flush()
    ...     require_regular(Path(file.name))
    3
    """
    return _require_regular(path, path.stat())


def _require_regular(path: Path, about: os.stat_result) -> int:
    if not stat.S_ISREG(about.st_mode):
        kind = _KINDS.get(stat.S_IFMT(about.st_mode), "no file")
        raise DataError(f"{path}: is {kind}, but must be a regular file")
    return about.st_size


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
