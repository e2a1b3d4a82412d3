"""Where data sets lie: the folders that FEDQUILT_DATA names, else the user's cache; and where the user's own files do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from fedquilt.base.errors import DataError
from fedquilt.data.files import expanded

_BESIDE: ContextVar[Path | None] = ContextVar("beside", default=None)
"""The folder of the spec whose files are looked for."""


def folders() -> list[Path]:
    """List the folders to look in: those of FEDQUILT_DATA, else `fedquilt` in the user's cache folder."""
    named = [name for name in os.environ.get("FEDQUILT_DATA", "").split(os.pathsep) if name]
    if named:
        return [expanded(Path(name)) for name in named]
    cache = os.environ.get("XDG_CACHE_HOME")
    return [(Path(cache) if cache else Path.home() / ".cache") / "fedquilt"]


def find(*names: str, source: str = "") -> Path:
    """Return the first file there is, by any of its names, looking through the folders in order.

    Names are relative to a folder. `source` says where the file can be had, for the message if there is none.
    """
    for folder in folders():
        for name in names:
            path = folder / name
            if path.is_file():
                return path
    looked = ", ".join(str(folder) for folder in folders())
    also = f" (also as {', '.join(names[1:])})" if len(names) > 1 else ""
    raise DataError(
        f"data file {names[0]} is missing{also}; looked in: {looked}. "
        f"Set FEDQUILT_DATA to the folder that holds it (several folders: separated by '{os.pathsep}')."
        + (f" {source}" if source else "")
    )


@contextmanager
def beside(folder: Path | None) -> Iterator[None]:
    """Let files of the user's own be looked for in this folder too, which is that of a spec."""
    before = _BESIDE.set(folder)
    try:
        yield
    finally:
        _BESIDE.reset(before)


def near_candidates(path: Path, spec_folder: Path | None) -> list[Path]:
    """List where a file that a spec names may be: as seen from the working directory, then in the spec's folder."""
    named = expanded(path)
    return [named] if spec_folder is None else [named, spec_folder / named]


def own_candidates(path: Path) -> list[Path]:
    """List where a file of the user's own may be: near, as above, or below one of the data folders."""
    below = [folder / expanded(path) for folder in folders()]
    return list(dict.fromkeys([*near_candidates(path, _BESIDE.get()), *below]))


def own_file(path: Path, advice: str = "") -> Path:
    """Return where a file or folder of the user's own is, or raise a DataError that names every path looked at."""
    candidates = own_candidates(path)
    for candidate in candidates:
        if candidate.exists():
            return candidate
    looked = ", ".join(str(candidate) for candidate in candidates)
    raise DataError(f"{path}: no such file or folder; looked for: {looked}" + (f". {advice}" if advice else ""))


def folder_for(name: str) -> Path:
    """Return the first folder of that name that there is, or else where it would be looked for first."""
    candidates = [folder / name for folder in folders()]
    return next((candidate for candidate in candidates if candidate.is_dir()), candidates[0])
