"""Finds and reads what a report is asked to show: runs, folders of runs, experiments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedquilt.base.errors import RunError
from fedquilt.experiment.contents import (
    CHECKPOINTS,
    ENVIRONMENT,
    ERROR,
    FARES,
    METRICS,
    POPULATION,
    SPEC,
    Contents,
)
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.summary import summarise

READ = (SPEC, METRICS, FARES, POPULATION, ENVIRONMENT, ERROR, CHECKPOINTS)
"""Files whose change makes it necessary to read a run again."""


@dataclass(frozen=True)
class Seen:
    """A run that was read: what its folder holds, and what that says; or why it could not be read."""

    path: Path
    found: Contents | None = None
    about: dict[str, Any] | None = None
    problem: str | None = None


class Reader:
    """Reads runs, and those that have changed again."""

    def __init__(self) -> None:
        """Begin with nothing read."""
        self._kept: dict[Path, tuple[object, Seen]] = {}

    def run(self, path: Path) -> Seen:
        """Read a run folder; what is wrong with one that cannot be read is in its `problem`."""
        folder = RunFolder(path)
        key = (folder.running(), *(_stamp(path / name) for name in READ))
        if path not in self._kept or self._kept[path][0] != key:
            self._kept[path] = key, _read(folder)
        return self._kept[path][1]


def _read(folder: RunFolder) -> Seen:
    try:
        found = folder.read()
    except RunError as error:
        return Seen(folder.path, problem=str(error))
    return Seen(folder.path, found, summarise(folder, found))


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def run_folders(path: Path) -> Iterator[Path]:
    """Iterate over the run folders below a folder, in the order of their names; other folders are passed over.

    A sweep's trials may lie deeper than one level: a trial is named for its values, which may hold slashes.
    """
    for spec in sorted(path.rglob(SPEC)):
        if not any(part.startswith(".") for part in spec.relative_to(path).parts):
            yield spec.parent


def is_run(path: Path) -> bool:
    """Say whether a folder is a run folder."""
    return (path / SPEC).is_file()


def labels_of(paths: Sequence[Path]) -> list[str]:
    """Return short names for folders: as much of the end of their paths as tells them apart.

    >>> labels_of([Path("a/x"), Path("b/y")]), labels_of([Path("a/x"), Path("b/x")])
    (['x', 'y'], ['a/x', 'b/x'])
    """
    longest = max((len(path.parts) for path in paths), default=0)
    for count in range(1, longest + 1):
        labels = [str(Path(*path.parts[-count:])) for path in paths]
        if len(set(labels)) == len(paths) and all(label != "." for label in labels):
            return labels
    return [str(path) for path in paths]
