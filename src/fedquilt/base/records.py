"""Operations on records and functions with bound arguments, however deep: as text, with parts replaced, applied once.

The text is the same in every process: it tells whether two runs are of the same thing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from types import FunctionType
from typing import Any, TypeVar

from fedquilt.base.errors import SpecError

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


T = TypeVar("T")


def replaced(part: Any, kind: type[T], change: Callable[[T], Any]) -> Any:
    """Return a part with `change` applied to everything of a kind in it: in records, tuples and bound arguments.

    >>> replaced(partial(print, (1, 2.0)), int, lambda number: number + 1).args
    ((2, 2.0),)
    """
    return _replaced(part, kind, change, {})


def _replaced(part: Any, kind: type[T], change: Callable[[T], Any], done: dict[int, Any]) -> Any:
    """Replace once what stands in several places: a chain holds its transforms three times, and those theirs."""
    if id(part) not in done:
        done[id(part)] = _changed(part, kind, change, done)
    return done[id(part)]


def _changed(part: Any, kind: type[T], change: Callable[[T], Any], done: dict[int, Any]) -> Any:
    if isinstance(part, kind):
        return change(part)
    if isinstance(part, tuple) and type(part) is tuple:
        return tuple(_replaced(each, kind, change, done) for each in part)
    if isinstance(part, partial):
        named = {key: _replaced(each, kind, change, done) for key, each in part.keywords.items()}
        return partial(part.func, *(_replaced(each, kind, change, done) for each in part.args), **named)
    if is_dataclass(part) and not isinstance(part, type):
        before = {field.name: getattr(part, field.name) for field in fields(part) if field.init}
        after = {name: _replaced(each, kind, change, done) for name, each in before.items()}
        changed = {name: each for name, each in after.items() if each is not before[name]}
        return replace(part, **changed) if changed else part
    return part


@dataclass(frozen=True)
class Applied:
    """What wrappers did to a method: `claims` says which of them set which part, `wrappers` which values each was given."""

    claims: tuple[tuple[str, str], ...] = ()
    wrappers: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()


def applied_once(algorithm: Any, wrapper: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Apply a wrapper, or return the method as it is if it was applied before with the same values.

    A second application with other values is an error: whether the values add up, or one replaces the other, would depend
    on the wrapper.

    >>> from fedquilt.methods import fed_avg, fed_prox
    >>> once = fed_prox(fed_avg(), mu=0.1)
    >>> fed_prox(once, mu=0.1) is once
    True
    >>> fed_prox(once, mu=0.2)
    Traceback (most recent call last):
    fedquilt.base.errors.SpecError: fed_prox is applied twice, with different values (mu = 0.1 and mu = 0.2): use one
    of them
    """
    name, values = wrapper.__name__, {key: describe(value) for key, value in arguments.items()}
    before = dict(algorithm.applied.wrappers).get(name)
    if before is None:
        after = wrapper(algorithm, **arguments)
        return after if after is algorithm else _noted(after, name, values)
    other = [(key, value) for key, value in before if value != values.get(key)]
    if other:
        first, second = (", ".join(f"{key} = {of[key]}" for key, _ in other) for of in (dict(before), values))
        raise SpecError(f"{name} is applied twice, with different values ({first} and {second}): use one of them")
    return algorithm


def _noted(algorithm: Any, name: str, values: dict[str, str]) -> Any:
    before: Applied = algorithm.applied
    return replace(algorithm, applied=replace(before, wrappers=(*before.wrappers, (name, tuple(values.items())))))
