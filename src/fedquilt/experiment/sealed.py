"""Text files that carry a checksum of their content, so that one damaged bit is noticed.

A JSON object has the check as its last key; any other text has it in its last line, a comment. It is the first 16 digits of
the SHA-256 of everything else, as it was written.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

KEY = "check"
MARK = "# check: "
EDITED = "edited"
HINT = f"; write {EDITED} for the digits if you change the file by hand"


class DamagedError(ValueError):
    """A content that is not what was written; the text says why."""


def sealed_json(about: dict[str, Any], indent: int | None = None) -> str:
    """Write a JSON object with its check; without `indent`, in one line.

    >>> print(sealed_json({"round": 1}), end="")
    {"round": 1, "check": "e4efddf83021d110"}
    """
    return json.dumps(about | {KEY: _digest(json.dumps(about))}, indent=indent) + "\n"


def unsealed_json(content: bytes, indent: int | None = None) -> dict[str, Any]:
    """Read what `sealed_json` wrote, without the check, or raise a DamagedError.

    >>> unsealed_json(sealed_json({"round": 1}).encode())
    {'round': 1}
    >>> unsealed_json(sealed_json({"round": 1}).replace("1", "2", 1).encode())
    Traceback (most recent call last):
    fedquilt.experiment.sealed.DamagedError: its checksum does not match
    """
    try:
        text = content.decode("utf-8")
        about = json.loads(text)
    except (ValueError, RecursionError):
        raise DamagedError("it is not JSON") from None
    if not isinstance(about, dict):
        raise DamagedError("it is not a JSON object")
    if about.pop(KEY, None) is None:
        raise DamagedError("it has no checksum")
    if sealed_json(about, indent) != text:
        raise DamagedError("its checksum does not match")
    return about


def sealed_text(text: str) -> str:
    """Return a text with a last line that has its check.

    >>> print(sealed_text("rounds = 2"), end="")
    rounds = 2
    # check: be2510b147516a05; write edited for the digits if you change the file by hand
    """
    whole = text if text.endswith("\n") else text + "\n"
    return f"{whole}{MARK}{_digest(whole)}{HINT}\n"


def unsealed_text(content: bytes) -> str:
    """Read what `sealed_text` wrote, without the check, or raise a DamagedError.

    >>> unsealed_text(sealed_text("rounds = 2").encode())
    'rounds = 2\\n'
    >>> unsealed_text(b"rounds = 3")
    Traceback (most recent call last):
    fedquilt.experiment.sealed.DamagedError: its last line, `# check: …`, is missing
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DamagedError(f"it is not text in UTF-8 (byte {error.start})") from None
    body, mark, _ = text.rpartition(MARK)
    if not mark:
        raise DamagedError("its last line, `# check: …`, is missing")
    if sealed_text(body) != text:
        raise DamagedError("its checksum does not match")
    return body


def edited_text(content: bytes) -> str | None:
    """Return a text whose last line says that somebody changed it by hand, without that line; None if it does not say so.

    A file that was cut short has no such line: it is never taken for one that was changed.

    >>> edited_text(b"rounds = 3\\n# check: edited"), edited_text(b"rounds = 3\\n")
    ('rounds = 3\\n', None)
    """
    body, mark, check = content.decode("utf-8", errors="replace").rpartition(MARK)
    return body if mark and check.split(";")[0].strip() == EDITED else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
