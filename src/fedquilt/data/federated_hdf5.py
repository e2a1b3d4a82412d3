"""HDF5 files of TensorFlow Federated's data sets: a group `examples`, in it a group for every client, in that columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

from fedquilt.data.memory import require_memory
from fedquilt.data.packaged import installed
from fedquilt.errors import DataError, MissingExtraError

DAMAGED = (KeyError, OSError, RuntimeError, TypeError, ValueError)
"""What h5py raises on damaged files."""


class Clients:
    """The clients of an open file, in the order of their names."""

    def __init__(self, path: Path, examples: Any) -> None:
        """Look up who is there."""
        self.path = path
        self.examples = examples
        with _readable(path):
            self.names: list[str] = sorted(examples)
        if not self.names:
            raise DataError(f"{path}: has no clients in 'examples'")

    def column(self, client: str, name: str, shape: tuple[int, ...] = ()) -> Any:
        """Return a column of a client, unread, after a look at its shape: a row an example, each of `shape`."""
        with _readable(self.path, f"examples/{client}/{name}"):
            own = self.examples[client]
            if name not in getattr(own, "keys", list)():
                raise DataError(f"{self.path}: examples/{client} has no column '{name}'")
            found = own[name]
            if getattr(found, "shape", None) is None or found.shape[1:] != shape or not found.ndim:
                wanted = " × ".join(["examples", *map(str, shape)])
                raise DataError(f"{self.path}: examples/{client}/{name} is not an array of {wanted}")
            return found

    def read(self, client: str, name: str, rows: int, shape: tuple[int, ...] = ()) -> Any:
        """Read the first rows of a client's column."""
        column = self.column(client, name, shape)
        place = f"examples/{client}/{name}"
        with _readable(self.path, place):
            size = min(rows, len(column)) * prod(shape) * column.dtype.itemsize
            require_memory(f"{self.path}: {place}", size)
            return column[:rows]


@contextmanager
def opened(path: Path) -> Iterator[Clients]:
    """Open a file for reading its clients."""
    if not installed("h5py"):
        raise MissingExtraError(f"{path}: HDF5", "hdf5")
    import h5py

    with _readable(path):
        file = h5py.File(path, "r")
    with file:
        with _readable(path):
            examples = file.get("examples")
        if not isinstance(examples, h5py.Group):
            raise DataError(f"{path}: has no group 'examples'; expected a file of TensorFlow Federated's data sets")
        yield Clients(path, examples)


@contextmanager
def _readable(path: Path, place: str = "") -> Iterator[None]:
    """Turn what h5py raises into a DataError that names the file."""
    try:
        yield
    except DAMAGED as error:
        raise DataError(f"{path}: {place}{' ' if place else ''}cannot be read: {error}") from error
