"""Text from specs, files and clients, made fit to be shown or stored: no raw control characters, no endless lengths."""

from __future__ import annotations

LONGEST = 2000
"""No message to the user is longer, in characters."""

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


def _escape(character: str) -> str:
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
