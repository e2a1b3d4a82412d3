"""Reads TOML as specs are written in, and refuses what no spec can mean: endless texts, numbers and nesting."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedquilt.base.errors import SpecError
from fedquilt.base.text import visible

Table = dict[str, Any]

LONGEST_FILE = 2**20
LONGEST_KEY = 200
LONGEST_TEXT = 4096
DEEPEST = 16
"""Tables and lists inside of one another: a spec needs five."""


def parse(text: str) -> Table:
    """Parse TOML; raise a `tomllib.TOMLDecodeError`, and nothing else, for what is none.

    >>> parse("lr = 1e400")
    Traceback (most recent call last):
    tomllib.TOMLDecodeError: 1e400 is too large
    """
    try:
        return tomllib.loads(text, parse_float=_float)
    except tomllib.TOMLDecodeError as error:
        raise tomllib.TOMLDecodeError(visible(str(error), 200)) from None
    except RecursionError:
        raise tomllib.TOMLDecodeError("lists or tables are nested too deeply") from None
    except ValueError:  # Python refuses to read whole numbers of thousands of digits
        raise tomllib.TOMLDecodeError("an integer has thousands of digits") from None


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value) and "inf" not in text:
        raise tomllib.TOMLDecodeError(f"{visible(text, 40)} is too large")
    return value


def read_text(path: Path) -> str:
    """Read a file of text in UTF-8, which may begin with a byte order mark; raise a SpecError if it is too long."""
    with path.open("rb") as file:
        content = file.read(LONGEST_FILE + 1)
    if len(content) > LONGEST_FILE:
        raise SpecError(f"{path}: is longer than {LONGEST_FILE:,} bytes, the limit for a spec")
    return content.decode("utf-8-sig")


def require_plain(tables: Mapping[str, Any], source: str) -> None:
    """Refuse, wherever a table comes from, texts, numbers and nesting beyond all use.

    >>> require_plain({"method": {"lr": 10**30}}, "spec")
    Traceback (most recent call last):
    fedquilt.base.errors.SpecError: spec: [method] lr: integers must be between -2^63 and 2^63
    """
    for keys, value in _within(tables):
        wrong = _beyond_use(keys, value)
        if wrong is not None:
            table, *inner = (visible(str(key), 40) for key in keys[:4])
            raise SpecError(f"{source}: [{table}]{''.join(f' {key}' for key in inner)}: {wrong}")


def _within(value: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Go through all that a table holds, without recursion: it may be deeper than Python's stack."""
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while waiting:
        keys, value = waiting.pop()
        if keys:
            yield keys, value
        if isinstance(value, Mapping):
            waiting.extend(((*keys, key), inner) for key, inner in reversed(list(value.items())))
        elif isinstance(value, list | tuple):
            waiting.extend(((*keys, number), inner) for number, inner in enumerate(value, start=1))


def _beyond_use(keys: tuple[Any, ...], value: Any) -> str | None:
    key = keys[-1]
    if len(keys) > DEEPEST:
        return f"lists or tables are nested more than {DEEPEST} levels deep"
    if isinstance(key, str) and len(key) > LONGEST_KEY:
        return f"a key may have at most {LONGEST_KEY} characters, got {len(key):,}"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "integers must be between -2^63 and 2^63"
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return f"a string may have at most {LONGEST_TEXT:,} characters, got {len(value):,}"
    return None
