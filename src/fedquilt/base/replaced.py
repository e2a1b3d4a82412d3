"""A method, or any part of one, with parts of a kind replaced wherever they stand: in a client's second training too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, TypeVar

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
