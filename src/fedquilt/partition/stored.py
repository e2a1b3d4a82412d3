"""Partitions as files: two arrays, what clients have besides, and a description in JSON, in one `.npz`.

Nothing in it is unpickled, and nothing is allocated that the file does not hold: every array's header is checked against
the bytes that are there. A partition knows the digest of the labels it was made for, and fits no other data set.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fedquilt.base.errors import DataError, listed
from fedquilt.base.memory import require_memory
from fedquilt.base.registry import partitions
from fedquilt.base.text import visible
from fedquilt.base.types import Indices
from fedquilt.data.data import Data, Noise
from fedquilt.data.fetch.folders import own_file
from fedquilt.data.files import open_file
from fedquilt.partition.dealing import Labels
from fedquilt.partition.partition import Partition, small

FORMAT = "fedquilt partition 1"
NAMES = {"about.npy"} | {f"{part}{name}.npy" for part in ("", "test_") for name in ("indices", "offsets", "noise")}
WRITES = "`fedquilt partition SPEC --out FOLDER` writes one."
Arrays = dict[str, npt.NDArray[Any]]


@partitions.register
def stored(path: Path, labels: Labels, data: Data | None = None) -> Partition:
    """Load a partition from a file, `partition.npz` of a run or of `fedquilt partition`.

    It is refused where the data set's labels are not those it was made for.

    >>> import tempfile
    >>> labels, held = np.array([0, 1, 1]), Partition.of([[2, 0], [1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "partition.npz"
    ...     _ = path.write_bytes(to_bytes(held, labels))
    ...     again = stored(path, labels)
    >>> again.indices.tolist(), again.offsets.tolist()
    ([2, 0, 1], [0, 2, 3])
    """
    path = own_file(path, WRITES)
    arrays, about = _read(path)
    if about.get("labels") != labels_digest(labels):
        raise DataError(f"{path}: was made for another data set: its labels differ from those of this data set")
    test = None
    if "test_indices" in arrays:
        rows = about.get("test_rows")
        if data is not None and rows != len(data.test):
            raise DataError(f"{path}: was made for a data set with {rows} test examples, this one has {len(data.test)}")
        test = _partition(path, arrays, about, "test_", rows if isinstance(rows, int) else 0)
    held = _partition(path, arrays, about, "", len(labels), test)
    if test is not None and len(test) != len(held):
        raise DataError(f"{path}: is damaged: it has {len(held)} clients, but per-client tests for {len(test)}")
    return held


def describe_stored(path: Path) -> dict[str, Any]:
    """Return what a stored partition says of itself."""
    return _read(own_file(path, WRITES))[1]


def to_bytes(
    held: Partition, labels: Labels, made_by: dict[str, Any] | None = None, test_rows: int | None = None
) -> bytes:
    """Write a partition and its description; `made_by` is the table of a spec, `test_rows` the size of the test set."""
    about = {
        "format": FORMAT,
        "clients": len(held),
        "examples": len(held.indices),
        "rows": len(labels),
        "labels": labels_digest(labels),
        "made_by": made_by or {},
    }
    arrays: Arrays = {}
    for part, each in (("", held), ("test_", held.test)):
        if each is None:
            continue
        arrays |= {f"{part}indices": small(each.indices), f"{part}offsets": small(each.offsets)}
        if each.noise is not None:
            arrays[f"{part}noise"] = each.noise.std
            about[f"{part}noise"] = {"seed": each.noise.seed, "split": each.noise.split}
    if held.test is not None:
        about["test_rows"] = test_rows if test_rows is not None else int(held.test.indices.max(initial=-1)) + 1
    text = json.dumps(about, default=str).encode()
    file = io.BytesIO()
    np.savez(file, about=np.frombuffer(text, dtype=np.uint8), **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def labels_digest(labels: Labels) -> str:
    """Return the SHA-256 of labels, whatever whole numbers they are stored as, or of targets that are numbers.

    >>> labels_digest(np.array([0, 1], dtype=np.uint8)) == labels_digest(np.array([0, 1]))
    True
    >>> labels_digest(np.array([0.2, 1.7])) == labels_digest(np.array([0.3, 1.7]))
    False
    """
    sha = hashlib.sha256(str(labels.shape).encode())
    sha.update(np.ascontiguousarray(labels, dtype="<f8" if labels.dtype.kind == "f" else "<i8").data)
    return sha.hexdigest()


def _partition(
    path: Path, arrays: Arrays, about: dict[str, Any], part: str, rows: int, test: Partition | None = None
) -> Partition:
    indices, offsets, std = (arrays.get(f"{part}{name}") for name in ("indices", "offsets", "noise"))
    for name, values in (("indices", indices), ("offsets", offsets)):
        if values is None or values.ndim != 1 or values.dtype not in (np.dtype("<i4"), np.dtype("<i8")):
            raise DataError(f"{path}: is damaged: {part}{name} must be a one-dimensional array of integers")
    assert indices is not None
    assert offsets is not None
    wide: Indices = np.asarray(offsets, dtype=np.int64)
    sizes = wide[1:] - wide[:-1]
    if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != len(indices) or (sizes < 0).any():
        raise DataError(f"{path}: is damaged: {part}offsets must increase from 0 to {len(indices)}")
    if len(indices) and (int(indices.min()) < 0 or int(indices.max()) >= rows):
        raise DataError(f"{path}: is damaged: {part}indices must be between 0 and {rows - 1}")
    held = Partition.by_sizes(indices, sizes)
    noise = None
    if std is not None:
        how = about.get(f"{part}noise")
        known = isinstance(how, dict) and isinstance(how.get("seed"), int) and isinstance(how.get("split"), str)
        if not known or std.shape != (rows,) or std.dtype != np.dtype("<f4") or not (std >= 0).all():
            raise DataError(f"{path}: is damaged: {part}noise must be one number of 0 or more for each of {rows} rows")
        assert isinstance(how, dict)
        noise = Noise(std, how["seed"], how["split"])
    return Partition(held.indices, held.offsets, test, noise)


def _read(path: Path) -> tuple[Arrays, dict[str, Any]]:
    try:
        with open_file(path) as content, zipfile.ZipFile(content) as archive:
            arrays: Arrays = {}
            require_memory(str(path), 2 * path.stat().st_size)
            held = [member.filename for member in archive.infolist()]
            if set(held) - NAMES or len(held) > len(NAMES):
                raise DataError(
                    f"{path}: is not a partition file: expected the arrays {listed(sorted(NAMES))}, found "
                    f"{listed([visible(name, 40) for name in held])}"
                )
            for member in archive.infolist():
                if member.compress_type != zipfile.ZIP_STORED or member.file_size > path.stat().st_size:
                    raise DataError(
                        f"{path}: {member.filename} is compressed; the arrays of a partition are stored without compression"
                    )
                with archive.open(member) as file:
                    arrays[member.filename.removesuffix(".npy")] = _array(path, file, member)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{path}: is not a partition file, or is damaged: {error}") from None
    text = arrays.pop("about", None)
    try:
        about = json.loads(text.tobytes()) if text is not None and text.dtype == np.uint8 else None
    except ValueError:
        about = None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise DataError(f"{path}: is not a partition file: it is not marked as '{FORMAT}'")
    return arrays, about


def _array(path: Path, file: IO[bytes], member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    """Read an array whose header says no more than there is; an array of objects is refused unread."""
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise DataError(f"{path}: {member.filename} has the unknown version {version}")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject or fortran or math.prod(shape) * dtype.itemsize != member.file_size - file.tell():
        raise DataError(f"{path}: is damaged: {member.filename} does not match its header")
    return np.frombuffer(file.read(), dtype=dtype).reshape(shape)
