"""Text from specs, files and clients, made fit to be shown or stored: no raw control characters, no endless lengths."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
        return "an integer with thousands of digits"
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


def clock(seconds: float) -> str:
    """Write a duration.

    >>> clock(75), clock(4000)
    ('1:15', '1:06:40')
    """
    whole = int(seconds + 0.5)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def listed(words: Sequence[str]) -> str:
    """Write words as a list in a sentence.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def counted(number: int, noun: str) -> str:
    """Write a number of things.

    >>> counted(1, "round"), counted(2000, "round")
    ('1 round', '2,000 rounds')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def amount(size: int) -> str:
    """Write a number of bytes.

    >>> amount(0), amount(26_000), amount(1_234_567_890)
    ('0.0 kB', '26.0 kB', '1,234.6 MB')
    """
    return f"{size / 1e3:.1f} kB" if size < 1e6 else f"{size / 1e6:,.1f} MB"


def percent(value: float | None) -> str:
    """Write an accuracy.

    >>> percent(0.9312), percent(None)
    ('93.12%', '–')
    """
    return "–" if value is None else f"{100 * value:.2f}%"


SHARES = ("accuracy", "error", "top5")
"""Metrics that are written in percent."""


def figure(name: str, value: float | None) -> str:
    """Write a metric or a loss.

    >>> figure("top5", 0.9312), figure("perplexity", 12.34567), figure("loss", 0.5)
    ('93.12%', '12.3457', '0.5000')
    """
    if name in SHARES or value is None:
        return percent(value)
    return f"{value:.4f}" if 1e-4 <= abs(value) < 1e6 or not value else f"{value:.4g}"


def scores(about: Mapping[str, Any], loss: bool = False) -> list[str]:
    """Write accuracy and the other metrics; the loss too, if asked, or where a run does not measure accuracy.

    >>> scores({"accuracy": 0.9, "loss": 0.25}), scores({"accuracy": None, "loss": 0.25, "metrics": {"rmse": 0.5}})
    (['accuracy 90.00%'], ['loss 0.2500', 'rmse 0.5000'])
    >>> scores({"accuracy": None, "loss": None}, loss=True)
    ['accuracy –']
    """
    metrics = about.get("metrics") or {}
    without = about["accuracy"] is None and (about["loss"] is not None or metrics)
    shown = {} if without else {"accuracy": about["accuracy"]}
    shown |= {"loss": about["loss"]} if without or (loss and about["loss"] is not None) else {}
    return [f"{name} {figure(name, value)}" for name, value in (shown | metrics).items()]


def html_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table for a notebook.

    >>> html_table(["name"], [["a < b"]])
    '<table><tr><th>name</th></tr><tr><td>a &lt; b</td></tr></table>'
    """
    lines = [("th", header), *(("td", row) for row in rows)] if header else [("td", row) for row in rows]
    written = ["".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) for tag, cells in lines]
    return f"<table>{''.join(f'<tr>{cells}</tr>' for cells in written)}</table>"
