"""HDF5 files of TensorFlow Federated's data sets: a group `examples`, in it a group for every client, in that columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

from fedquilt.base.errors import DataError, optional
from fedquilt.base.memory import in_words, require_memory
from fedquilt.data.files import require_regular

DAMAGED = (KeyError, OSError, RuntimeError, TypeError, ValueError)
"""What h5py raises on damaged files."""


_TEXTS = 1000
"""Texts that are read at once."""

_LARGEST_RATIO = 1032
"""No array, packed as HDF5 does it, grows by more than this when it is read."""


class Clients:
    """The clients of an open file, in the order of their names."""

    def __init__(self, path: Path, examples: Any) -> None:
        self.path = path
        self.examples = examples
        with _readable(path):
            self.names: list[str] = sorted(examples)
        if not self.names:
            raise DataError(f"{path}: has no clients in 'examples'")

    def column(self, client: str, name: str, shape: tuple[int, ...] = ()) -> Any:
        """Return a column of a client, unread, after a look at its shape: a row per example, each of `shape`."""
        with _readable(self.path, f"examples/{client}/{name}"):
            where = f"{self.path}: examples/{client}"
            group = _inside(where, self.examples, client)
            if name not in getattr(group, "keys", list)():
                raise DataError(f"{where} has no column '{name}'")
            found = _inside(f"{where}/{name}", group, name)
            if getattr(found, "shape", None) is None or found.shape[1:] != shape or not found.ndim:
                wanted = " × ".join(["examples", *map(str, shape)])
                raise DataError(f"{where}/{name} is not an array of {wanted}")
            _require_written(f"{where}/{name}", found)
            return found

    def read(self, client: str, name: str, rows: int, shape: tuple[int, ...] = ()) -> Any:
        """Read the first rows of a client's column."""
        column = self.column(client, name, shape)
        where = f"examples/{client}/{name}"
        with _readable(self.path, where):
            # Twice: what is read, and what is made of it.
            size = 2 * min(rows, len(column)) * prod(shape) * column.dtype.itemsize
            require_memory(f"{self.path}: {where}: {min(rows, len(column)):,} rows", size)
            return column[:rows] if column.dtype.kind != "O" else self._texts(where, column, rows)

    def _texts(self, where: str, column: Any, rows: int) -> list[Any]:
        """Read texts, some at a time: many rows may share one, so that they are longer together than their file."""
        found: list[Any] = []
        size, whole = 0, self.path.stat().st_size
        for first in range(0, min(rows, len(column)), _TEXTS):
            found += column[first : min(first + _TEXTS, rows)].tolist()
            size += sum(len(text) for text in found[first:] if isinstance(text, bytes))
            if size > whole:
                raise DataError(f"{self.path}: {where} is damaged: its texts are longer than the file")
        return found


@contextmanager
def opened(path: Path) -> Iterator[Clients]:
    """Open a file for reading its clients."""
    h5py = optional("h5py", f"{path}: HDF5", "hdf5")
    with _readable(path):
        require_regular(path)
        file = h5py.File(path, "r")
    with file:
        with _readable(path):
            examples = _inside(f"{path}: examples", file, "examples") if "examples" in file else None
        if not isinstance(examples, h5py.Group):
            raise DataError(f"{path}: has no group 'examples'; expected a file of TensorFlow Federated's data sets")
        yield Clients(path, examples)


def _inside(where: str, group: Any, name: str) -> Any:
    """Return what a group holds itself: a link could lead to another file, and that to any file of this machine."""
    import h5py

    if group.id.links.get_info(name.encode()).type != h5py.h5l.TYPE_HARD:
        raise DataError(f"{where} is a link; only data in the file itself are read")
    return group[name]


def _require_written(where: str, column: Any) -> None:
    """Refuse an array that is in other files, or that claims more than was ever written of it."""
    if column.external or column.is_virtual:
        raise DataError(f"{where} is stored in another file; only data in the file itself are read")
    claimed, stored = column.size * column.dtype.itemsize, column.id.get_storage_size()
    if claimed > stored * _LARGEST_RATIO:
        raise DataError(
            f"{where} claims {len(column):,} rows, {in_words(claimed)}; the file holds {in_words(stored)} of it"
        )


@contextmanager
def _readable(path: Path, where: str = "") -> Iterator[None]:
    """Turn what h5py raises into a DataError that names the file."""
    try:
        yield
    except DAMAGED as error:
        raise DataError(f"{path}: {where}{' ' if where else ''}cannot be read: {error}") from error
