"""Values as text that is the same in every process: for telling whether two runs are of the same thing."""

from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass
from functools import partial
from types import FunctionType
from typing import Any

LONGEST = 16_384
"""A part whose text is longer is written as its digest inside of others: stacked wrappers hold one another many times."""

_Known = dict[int, tuple[Any, str]]
"""What was written already, by identity; the values themselves are held, so that no identity is given out twice."""


def describe(value: Any) -> str:
    """Write a value, a function with its bound arguments, or a record of such, without addresses.

    The time it takes grows with the number of values, however often one holds another.

    >>> from fedquilt.algorithm.parts.selection import Uniform
    >>> describe(partial(print, Uniform(0.1)))
    'builtins.print(Uniform(fraction=0.1, cohort=None))'
    """
    return _text(value, {})


def _text(value: Any, known: _Known) -> str:
    if id(value) in known:
        return known[id(value)][1]
    known[id(value)] = (value, "itself")  # a function may refer to itself
    text = _written(value, known)
    known[id(value)] = (value, text)
    return text


def _inside(value: Any, known: _Known) -> str:
    text = _text(value, known)
    return text if len(text) <= LONGEST else f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _written(value: Any, known: _Known) -> str:
    if isinstance(value, partial):
        bound = [_inside(part, known) for part in value.args]
        named = [f"{key}={_inside(part, known)}" for key, part in sorted(value.keywords.items())]
        return f"{_inside(value.func, known)}({', '.join([*bound, *named])})"
    if is_dataclass(value) and not isinstance(value, type):
        inside = [f"{field.name}={_inside(getattr(value, field.name), known)}" for field in fields(value)]
        return f"{type(value).__qualname__}({', '.join(inside)})"
    if isinstance(value, tuple | list):
        return f"[{', '.join(_inside(part, known) for part in value)}]"
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        bound = [_inside(part, known) for part in (*cells, *(value.__defaults__ or ()))]
        return f"{value.__module__}.{value.__qualname__}" + (f"[{', '.join(bound)}]" if bound else "")
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {describe(part)}' for key, part in value.items())}}}"
    if getattr(type(value), "__repr__", None) is object.__repr__:  # which is an address
        return f"{type(value).__module__}.{type(value).__qualname__}"
    return repr(value)
