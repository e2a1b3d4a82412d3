"""Data sets of files that fedquilt has no source to fetch from: which files, and where they are looked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from fedquilt.base.registry import sources
from fedquilt.data.fetch.folders import folders
from fedquilt.data.fetch.published import check_digest
from fedquilt.data.fetch.tell import Tell, tell_nobody

_BY_HAND: dict[str, tuple[Wanted, ...]] = {}


@dataclass(frozen=True)
class Wanted:
    """A file, or a folder of images, by the names it is looked for below a data folder; any one of them will do.

    `source` says where it can be had, `when` for which arguments it is needed; by default for those of a bare name.
    `digests` are those that are published, of the unpacked content, by the last part of a name; `largest` its bytes, at
    most.
    """

    names: tuple[str, ...]
    source: str
    when: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)
    largest: int = 2**30

    def can_check(self, path: Path) -> bool:
        """Whether a digest is published for the file at the path."""
        return path.name in self.digests

    def check(self, path: Path, tell: Tell = tell_nobody) -> None:
        """Raise a DataError unless the file at the path has the published digest, where there is one."""
        if self.can_check(path):
            check_digest(path, self.digests[path.name], self.largest, tell)

    def found(self) -> Path | None:
        """Return where it is, or None."""
        candidates = (folder / name for folder in folders() for name in self.names)
        return next((candidate for candidate in candidates if candidate.exists()), None)

    def __str__(self) -> str:
        """Say whether it was found, and under which name.

        >>> str(Wanted(("no/such.csv", "such.csv"), "", 'split = "23k"'))
        'missing: no/such.csv or such.csv (with split = "23k")'
        """
        path = self.found()
        known = f"missing: {' or '.join(self.names)}" if path is None else f"found: {path}"
        return known + (f" (with {self.when})" if self.when else "")


def by_hand(name: str, *wanted: Wanted) -> None:
    """Add a data set to those that `fedquilt data` knows to be put in place by hand."""
    _BY_HAND[name] = wanted


def all_by_hand() -> dict[str, tuple[Wanted, ...]]:
    """Return what every data set of this kind looks for, by its name.

    >>> sorted(all_by_hand())[:3]
    ['femnist', 'inaturalist', 'landmarks']
    """
    for module, _ in sources("fedquilt.data.sets", "by_hand("):
        import_module(module)
    return _BY_HAND
