"""Values as text that is the same in every process: for telling whether two runs are of the same thing."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import partial
from types import FunctionType
from typing import Any


def describe(value: Any) -> str:
    """Write a value, a function with its bound arguments, or a record of such, without addresses.

    >>> from fedquilt.parts.selection import Uniform
    >>> describe(partial(print, Uniform(0.1)))
    'builtins.print(Uniform(fraction=0.1))'
    """
    if isinstance(value, partial):
        bound = [describe(part) for part in value.args]
        named = [f"{key}={describe(part)}" for key, part in sorted(value.keywords.items())]
        return f"{describe(value.func)}({', '.join([*bound, *named])})"
    if is_dataclass(value) and not isinstance(value, type):
        inside = [f"{field.name}={describe(getattr(value, field.name))}" for field in fields(value)]
        return f"{type(value).__qualname__}({', '.join(inside)})"
    if isinstance(value, tuple | list):
        return f"[{', '.join(describe(part) for part in value)}]"
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        bound = [describe(part) for part in (*cells, *(value.__defaults__ or ()))]
        return f"{value.__module__}.{value.__qualname__}" + (f"[{', '.join(bound)}]" if bound else "")
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {describe(part)}' for key, part in value.items())}}}"
    if getattr(type(value), "__repr__", None) is object.__repr__:  # which is an address
        return f"{type(value).__module__}.{type(value).__qualname__}"
    return repr(value)
