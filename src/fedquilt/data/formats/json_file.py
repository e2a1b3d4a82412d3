"""JSON, after a look at how much memory its values would take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedquilt.base.errors import DataError
from fedquilt.base.memory import require_memory
from fedquilt.data.packed import unpacked

_SMALL = 2**16
"""Text of fewer bytes is not looked at: what it makes is small."""

# Bytes that a value takes in Python, by the sign that comes with it: an object, an array, a value, a key, half a string.
_BYTES = {b"{": 240, b"[": 90, b",": 40, b":": 60, b'"': 30}


def read_json(path: Path) -> Any:
    """Read a file of JSON, packed or not.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "a.json"
    ...     _ = path.write_text('{"users": [1, 2]}')
    ...     read_json(path)
    {'users': [1, 2]}
    """
    with unpacked(path) as file:
        size = path.stat().st_size
        require_memory(f"{path}: its text", size)
        content = file.read()
    return parse_json(str(path), content)


def parse_json(where: str, content: bytes) -> Any:
    """Return what JSON text holds; a DataError names the place if that is none, or takes too much memory.

    >>> parse_json("a.json", b"[1, 2")
    Traceback (most recent call last):
    fedquilt.base.errors.DataError: a.json: is not JSON: ...
    """
    if len(content) > _SMALL:
        held = sum(content.count(sign) * size for sign, size in _BYTES.items())
        require_memory(f"{where}: its content", 3 * len(content) + held)
    try:
        return json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: is not JSON: {error}") from None
