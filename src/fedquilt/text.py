"""Text from specs, files and clients, made fit to be shown or stored: no raw control characters, no endless lengths."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST = 2000
"""No message to the user is longer, in characters."""

LONGEST_TEXT = 500
"""Characters of a text from a client that are stored or shown, at most."""

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str, limit: int = LONGEST, keep: str = "") -> str:
    r"""Make control characters visible and cut what is longer than `limit` characters, saying so.

    Everything that a terminal could take as a command, or would not show, is written as its escape in a Python string:
    escape sequences, newlines, marks that turn the direction of writing, halves of surrogate pairs. The characters in
    `keep` stay as they are: a message of our own may have several lines.

    >>> visible("red: \x1b[31m\n")
    'red: \\x1b[31m\\n'
    >>> visible("Zürich, 東京\n", keep="\n")
    'Zürich, 東京\n'
    >>> visible("a" * 100, limit=40)
    'aaaaaaaaaaaaaaaaaaaaa … (100 characters)'
    """
    pieces = [
        character if character.isprintable() or character in keep else _escape(character)
        for character in text[: limit + 1]
    ]
    length = sum(map(len, pieces))
    if length <= limit:
        return "".join(pieces)
    end = f" … ({len(text):,} characters)"
    while pieces and length + len(end) > limit:  # an escape is kept whole or left out
        length -= len(pieces.pop())
    return f"{''.join(pieces)}{end}"


def short(value: object, limit: int = 80) -> str:
    """Write a value of a spec or an argument in one short line, as Python would.

    >>> short([1, 2]), short("a" * 1000, limit=12)
    ('[1, 2]', "'aaaaaaaa...")
    """
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python does not write whole numbers of more than 4,300 digits
        return "a whole number of thousands of digits"
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def joined(lines: Sequence[str], most: int = 10) -> str:
    """Join the lines of a message, the first of them if they are many.

    >>> joined(["a", "b", "c"], most=2)
    'a\\nb\\n… and 1 more'
    """
    more = [f"… and {len(lines) - most:,} more"] if len(lines) > most else []
    return "\n".join([*lines[:most], *more])


def _escape(character: str) -> str:
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
