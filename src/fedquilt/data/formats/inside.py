"""Whether a file lies in a folder, wherever links lead: a table could name any file of the machine."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from pathlib import Path


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
