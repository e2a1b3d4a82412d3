"""Named functions that a spec may call: methods, models, data sets, partitions and engines.

A registered function's arguments are checked against its annotations on every call, from a spec or from Python, so that
a wrong value is refused in the same words everywhere.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from fedquilt.arguments import check

P = ParamSpec("P")
R = TypeVar("R")


class Registry:
    """Functions of one kind, by name.

    >>> shapes = Registry("shape")
    >>> @shapes.register
    ... def square(side: float) -> float:
    ...     '''The area of a square.'''
    ...     return side * side
    >>> shapes["square"](side=3.0), shapes.summary("square"), list(shapes)
    (9.0, 'The area of a square.', ['square'])
    """

    def __init__(self, kind: str) -> None:
        """Make an empty registry; `kind` is the word used in messages."""
        self.kind = kind
        self._functions: dict[str, Callable[..., object]] = {}

    def register(self, function: Callable[P, R]) -> Callable[P, R]:
        """Add a function under its own name, and check its arguments on every call (a decorator)."""

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            bound = inspect.signature(function).bind(*args, **kwargs)
            arguments = check(function, bound.arguments)
            return function(**arguments)  # type: ignore[call-arg]

        self._functions[function.__name__] = checked
        return checked

    def __getitem__(self, name: str) -> Callable[..., object]:
        """Return the function of that name."""
        return self._functions[name]

    def __contains__(self, name: object) -> bool:
        """Say whether the name is registered."""
        return name in self._functions

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, sorted."""
        return iter(sorted(self._functions))

    def summary(self, name: str) -> str:
        """Return the first line of the function's documentation."""
        return (inspect.getdoc(self._functions[name]) or "").split("\n", 1)[0]


methods = Registry("method")
models = Registry("model")
datasets = Registry("data set")
partitions = Registry("partition")
engines = Registry("engine")
