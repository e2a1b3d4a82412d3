"""Paths as users write them."""

from __future__ import annotations

from pathlib import Path


def expanded(path: Path) -> Path:
    """Put the home folder in place of `~`; a name after it that is no user's is left as it is, and will not be found.

    >>> expanded(Path("~nosuchuser/data.csv")).as_posix(), expanded(Path("~")) == Path.home()
    ('~nosuchuser/data.csv', True)
    """
    try:
        return path.expanduser()
    except RuntimeError:
        return path
