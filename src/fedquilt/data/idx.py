"""The idx format of the MNIST files (http://yann.lecun.com/exdb/mnist/): bytes in any number of dimensions.

Two zero bytes, the type (8: unsigned bytes), the number of dimensions, each as one byte; the sizes as 32-bit big-endian
numbers; the data. Plain or packed with gzip.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import IO, cast

import numpy as np
import numpy.typing as npt

from fedquilt.data.digest import require_digest
from fedquilt.errors import DataError

# No deflate stream grows by more than this when unpacked.
_LARGEST_RATIO = 1032


def read_idx(path: Path, dimensions: int, digest: str | None = None) -> npt.NDArray[np.uint8]:
    """Read an idx file of bytes, plain or gzipped, with that many dimensions.

    `digest` is the SHA-256 of the unpacked content, so that a file packed anew is taken as well. The header is checked
    against the size of the file before memory is taken for the data.
    """
    packed = _is_gzip(path)
    try:
        with cast(IO[bytes], gzip.open(path) if packed else path.open("rb")) as file:
            header = file.read(4 + 4 * dimensions)
            shape = _shape(path, header, dimensions)
            size = math.prod(shape)
            most = path.stat().st_size * (_LARGEST_RATIO if packed else 1)
            if size > most:
                raise DataError(f"{path}: damaged: the header promises {size} bytes, more than the file can hold")
            content = bytearray(header)
            # One byte more than promised, so that anything beyond is noticed.
            content += file.read(size + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    found = len(content) - len(header)
    if found != size:
        words = "more" if found > size else f"{found}"
        raise DataError(f"{path}: damaged: the header promises {size} bytes of data, the file has {words}")
    require_digest(path, content, digest)
    return np.frombuffer(content, dtype=np.uint8, offset=len(header)).reshape(shape)


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


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
