"""Data sets of files that fedquilt has no source to fetch from: which files, and where they are looked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedquilt.data.folders import folders

BY_HAND: dict[str, tuple[Wanted, ...]] = {}
"""What every such data set looks for, by its name."""


@dataclass(frozen=True)
class Wanted:
    """A file, or a folder of images, by the names it is looked for below a data folder; any one of them will do.

    `source` says where it can be had, `when` for which arguments it is needed; by default for those of a bare name.
    """

    names: tuple[str, ...]
    source: str
    when: str = ""

    def found(self) -> Path | None:
        """Return where it is, or None."""
        places = (folder / name for folder in folders() for name in self.names)
        return next((place for place in places if place.exists()), None)

    def __str__(self) -> str:
        """Say whether it is there, and how it is called.

        >>> str(Wanted(("no/such.csv", "such.csv"), "", 'split = "23k"'))
        'missing: no/such.csv or such.csv (with split = "23k")'
        """
        there = self.found()
        known = f"missing: {' or '.join(self.names)}" if there is None else f"there: {there}"
        return known + (f" (with {self.when})" if self.when else "")


def by_hand(name: str, *wanted: Wanted) -> None:
    """Add a data set to those that `fedquilt data` knows to be put in place by hand."""
    BY_HAND[name] = wanted
