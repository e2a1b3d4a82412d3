"""Checks that a file is the published one, by its SHA-256 or, where that is what was published, its MD5."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from fedquilt.base.errors import DataError

Bytes = bytes | bytearray | memoryview

ADVICE = "download it again, or use it anyway with `check = false`"
_KINDS = {32: "md5", 64: "sha256"}
_NAMES = {"md5": "MD5", "sha256": "SHA-256"}
"""Which digest it is, by its number of hexadecimal digits; and how it is written."""


def require_digest(path: Path, parts: Iterable[Bytes], wanted: str | None, advice: str = ADVICE) -> None:
    """Raise a DataError unless the content read from a file, part by part, has the digest; None asks for nothing.

    >>> require_digest(Path("a.bin"), [b"ab", b"c"], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    >>> require_digest(Path("a.bin"), [b"abc"], "900150983cd24fb0d6963f7d28e17f72")
    >>> require_digest(Path("a.bin"), [b"abd"], "900150983cd24fb0d6963f7d28e17f72")
    Traceback (most recent call last):
    fedquilt.base.errors.DataError: a.bin: the content differs from the published file: MD5 4911..., expected 9001...;
    download it again, or use it anyway with `check = false`
    """
    if wanted is None:
        return
    digest = hashlib.new(_KINDS[len(wanted)], usedforsecurity=False)
    for part in parts:
        digest.update(part)
    if digest.hexdigest() != wanted:
        found = f"{_NAMES[digest.name]} {digest.hexdigest()}"
        different = f"{path}: the content differs from the published file: {found}, expected {wanted}"
        raise DataError(different + (advice and f"; {advice}"))
