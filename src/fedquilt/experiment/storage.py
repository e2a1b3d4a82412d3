"""What to do when a folder cannot be written: one message for a full disk, a read-only one, and a folder that is gone."""

from __future__ import annotations

import errno
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedquilt.base.errors import StorageError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


@contextmanager
def storing(folder: Path) -> Iterator[None]:
    """Turn what keeps files of a folder from being written into a StorageError that says what to do.

    >>> with storing(Path("runs")):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    fedquilt.base.errors.StorageError: runs: cannot be written: No space left on device. Free some space, then try again
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(f"{folder}: cannot be written: {reason}. {_advice(folder, error.errno)}") from None


def _advice(folder: Path, number: int | None) -> str:
    again = f"continue with `fedquilt resume {shlex.quote(str(folder))}`"
    if number in GONE and not folder.is_dir():
        return f"The folder is gone: if it was moved, put it back and {again}; if it was deleted, run its spec again"
    todo = "Put that right"
    todo = "Free some space" if number in FULL else "Make it writable" if number in READ_ONLY else todo
    if not (folder / "spec.toml").exists():
        return f"{todo}, then try again"
    return f"{todo}, then {again}; what was saved before is intact"
