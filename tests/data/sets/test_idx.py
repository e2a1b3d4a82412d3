import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest

from fedquilt.base.errors import DataError
from fedquilt.data.sets.mnist import read_idx

VALUES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
CONTENT = bytes([0, 0, 8, 3]) + struct.pack(">3I", 2, 3, 4) + VALUES.tobytes()


def written(tmp_path: Path, content: bytes, packed: bool) -> Path:
    path = tmp_path / "x-idx"
    path.write_bytes(gzip.compress(content) if packed else content)
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_reads_plain_and_packed(tmp_path: Path, packed: bool) -> None:
    digest = hashlib.sha256(CONTENT).hexdigest()
    read = read_idx(written(tmp_path, CONTENT, packed), dimensions=3, digest=digest)
    assert np.array_equal(read, VALUES)
    assert read.flags.writeable


DAMAGED = {
    "short": (CONTENT[:-1], "declares 24 bytes of data, but the file has 23"),
    "long": (CONTENT + b"!", "declares 24 bytes of data, but the file has more"),
    "magic": (b"\0\0\x0d\x03" + CONTENT[4:], "begins with 00000d03, expected 00000803"),
    "dimensions": (b"\0\0\x08\x01" + CONTENT[4:], "begins with 00000801, expected 00000803"),
    "header": (CONTENT[:9], "the header ends early"),
    "empty": (b"", "not an idx file"),
    "huge": (CONTENT[:4] + b"\xff" * 12 + CONTENT[16:], "more than the file can hold"),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("damage", DAMAGED)
def test_damage_is_named(tmp_path: Path, damage: str, packed: bool) -> None:
    content, message = DAMAGED[damage]
    path = written(tmp_path, content, packed)
    with pytest.raises(DataError, match=message) as caught:
        read_idx(path, dimensions=3)
    assert str(path) in str(caught.value)


def test_cut_gzip(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(CONTENT)[:-12])
    with pytest.raises(DataError, match="cannot be read"):
        read_idx(path, dimensions=3)


def test_flipped_bit_in_gzip(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    packed = bytearray(gzip.compress(CONTENT))
    packed[-6] ^= 1  # in the checksum
    path.write_bytes(packed)
    with pytest.raises(DataError, match="cannot be read"):
        read_idx(path, dimensions=3)


def test_other_content(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read_idx(written(tmp_path, CONTENT, packed=False), dimensions=3, digest="0" * 64)
    assert hashlib.sha256(CONTENT).hexdigest() in str(caught.value)
    assert "0" * 64 in str(caught.value)
