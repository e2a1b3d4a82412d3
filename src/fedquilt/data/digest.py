"""Checks that a file is the published one."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fedquilt.errors import DataError


def require_digest(path: Path, content: bytes | bytearray | memoryview, wanted: str | None) -> None:
    """Raise a DataError unless the content read from a file has the SHA-256 digest; None asks for nothing.

    >>> require_digest(Path("a.bin"), b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    """
    if wanted is None:
        return
    found = hashlib.sha256(content).hexdigest()
    if found != wanted:
        raise DataError(
            f"{path}: the content is not the published one: SHA-256 {found}, expected {wanted}; fetch it again"
        )
