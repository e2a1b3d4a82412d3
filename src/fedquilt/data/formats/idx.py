"""The idx format of the MNIST files (http://yann.lecun.com/exdb/mnist/): bytes in any number of dimensions.

Two zero bytes, the type (8: unsigned bytes), the number of dimensions, each as one byte; the sizes as 32-bit big-endian
numbers; the data. Plain or packed with gzip.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from fedquilt.base.errors import DataError
from fedquilt.base.memory import require_memory
from fedquilt.data.digest import require_digest
from fedquilt.data.packed import unpacked

# No deflate stream grows by more than this when unpacked.
_LARGEST_RATIO = 1032
_CHUNK = 2**20


def read_idx(path: Path, dimensions: int, digest: str | None = None, most: int | None = None) -> npt.NDArray[np.uint8]:
    """Read an idx file of bytes, plain or packed, with that many dimensions.

    `digest` is the SHA-256 of the unpacked content, so that a file packed anew is taken as well; `most` its size, where
    that is known. The header is checked against it, the size of the file and the memory before any is taken for the data.
    """
    with unpacked(path, most) as file:
        header = file.read(4 + 4 * dimensions)
        shape = _shape(path, header, dimensions)
        size = math.prod(shape)
        if size > path.stat().st_size * _LARGEST_RATIO:
            raise DataError(f"{path}: damaged: the header declares {size} bytes, more than the file can hold")
        if most is not None and len(header) + size > most:
            raise DataError(
                f"{path}: damaged: the header declares {size} bytes, but the published file has at most {most}"
            )
        require_memory(f"{path}: {size:,} bytes of data", size)
        content = bytearray(len(header) + size)  # in one piece: a sum would be a copy
        content[: len(header)] = header
        found = _fill(file, memoryview(content)[len(header) :])
        more = found == size and bool(file.read(1))
    if found != size or more:
        words = "more" if more else f"{found}"
        raise DataError(f"{path}: damaged: the header declares {size} bytes of data, but the file has {words}")
    require_digest(path, [content], digest)
    return np.frombuffer(content, dtype=np.uint8, offset=len(header)).reshape(shape)


def _fill(file: BinaryIO, wanted: memoryview) -> int:
    """Read into memory, part by part, and return how much there was."""
    found = 0
    while part := file.read(min(_CHUNK, len(wanted) - found)):
        wanted[found : found + len(part)] = part
        found += len(part)
    return found


def _shape(path: Path, header: bytes, dimensions: int) -> tuple[int, ...]:
    wanted = bytes([0, 0, 8, dimensions])
    if header[:4] != wanted:
        raise DataError(
            f"{path}: not an idx file of bytes with {dimensions} dimensions: "
            f"begins with {header[:4].hex()}, expected {wanted.hex()}"
        )
    if len(header) < 4 + 4 * dimensions:
        raise DataError(f"{path}: damaged: the header ends early")
    return struct.unpack(f">{dimensions}I", header[4:])
