"""Checks that a file is the published one, by its SHA-256 or, where that is what was published, its MD5."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from fedquilt.base.errors import DataError
from fedquilt.data.fetch.tell import Tell, tell_nobody
from fedquilt.data.formats.packed import parts_unpacked

ADVICE = "download it again, or use it anyway with `check = false`"
_KINDS = {32: "md5", 64: "sha256"}
_NAMES = {"md5": "MD5", "sha256": "SHA-256"}
"""Which digest it is, by its number of hexadecimal digits; and how it is written."""


def require_digest(path: Path, content: bytes | bytearray | memoryview, wanted: str | None) -> None:
    """Raise a DataError unless the content read from a file has the digest; None asks for nothing.

    >>> require_digest(Path("a.bin"), b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    >>> require_digest(Path("a.bin"), b"abc", "900150983cd24fb0d6963f7d28e17f72")
    >>> require_digest(Path("a.bin"), b"abd", "900150983cd24fb0d6963f7d28e17f72")
    Traceback (most recent call last):
    fedquilt.base.errors.DataError: a.bin: the content differs from the published file: MD5 4911..., expected 9001...;
    download it again, or use it anyway with `check = false`
    """
    if wanted is None:
        return
    digest = _digest(wanted)
    digest.update(content)
    if digest.hexdigest() != wanted:
        raise DataError(f"{_different(path, digest, wanted)}; {ADVICE}")


def check_digest(path: Path, wanted: str, limit: int, tell: Tell = tell_nobody, advice: str = "") -> None:
    """Raise a DataError unless a file's content, however it is packed and at most `limit` bytes, has the digest."""
    digest, done = _digest(wanted), 0
    for part in parts_unpacked(path, limit):
        digest.update(part)
        done += len(part)
        tell(f"checking {path.name}", done, limit)
    if digest.hexdigest() != wanted:
        raise DataError(_different(path, digest, wanted) + (advice and f"; {advice}"))


def _digest(wanted: str) -> Any:
    return hashlib.new(_KINDS[len(wanted)], usedforsecurity=False)


def _different(path: Path, found: Any, wanted: str) -> str:
    digest = f"{_NAMES[found.name]} {found.hexdigest()}"
    return f"{path}: the content differs from the published file: {digest}, expected {wanted}"
