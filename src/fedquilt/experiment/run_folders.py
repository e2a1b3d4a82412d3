"""Finds the run folders below a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedquilt.experiment.contents import ASIDE, SPEC

DEEP = 3
"""How many folders below the one that is named runs are looked for."""


def run_folders(path: Path, deep: int = DEEP) -> Iterator[Path]:
    """Iterate over the run folders below a folder, in the order of their names; what is hidden or set aside is not."""
    for inner in sorted(path.iterdir()):
        if inner.name.startswith(".") or inner.name == ASIDE or not inner.is_dir():
            continue
        if is_run(inner):
            yield inner
        elif deep > 1:
            yield from run_folders(inner, deep - 1)


def is_run(path: Path) -> bool:
    """Say whether a folder is a run folder."""
    return (path / SPEC).is_file()
