"""Named functions that a spec may call: methods, models, data sets, partitions, engines, losses and metrics.

A registered function's arguments are checked against its annotations on every call, from a spec or from Python, so that
a wrong value is refused in the same words everywhere.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from fedquilt.arguments import check

if TYPE_CHECKING:
    from fedquilt.core.algorithm import Algorithm

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

    def __init__(self, kind: str, home: str | None = None) -> None:
        """Make a registry; `kind` is the word used in messages, `home` the package that fills it when it is first read."""
        self.kind = kind
        self._home = home
        self._functions: dict[str, Callable[..., object]] = {}

    def _filled(self) -> dict[str, Callable[..., object]]:
        if self._home is not None:
            importlib.import_module(self._home)
        return self._functions

    def register(self, function: Callable[P, R]) -> Callable[P, R]:
        """Add a function under its own name, and check its arguments on every call (a decorator)."""
        return self._register(function, function)

    def _register(self, function: Callable[P, R], called: Callable[..., R]) -> Callable[P, R]:
        """Add a function; `called` is what is called in its place, with its arguments by name."""

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            names = list(inspect.signature(function).parameters)
            if len(args) > len(names):
                raise TypeError(f"{function.__name__} takes at most {len(names)} arguments, got {len(args)}")
            return called(**check(function, {**dict(zip(names, args, strict=False)), **kwargs}))

        self._functions[function.__name__] = checked
        return checked

    def __getitem__(self, name: str) -> Callable[..., object]:
        """Return the function of that name."""
        return self._filled()[name]

    def __contains__(self, name: object) -> bool:
        """Say whether the name is registered."""
        return name in self._filled()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, sorted."""
        return iter(sorted(self._filled()))

    def summary(self, name: str) -> str:
        """Return the first line of the function's documentation."""
        return (inspect.getdoc(self[name]) or "").split("\n", 1)[0]


class Wrappers(Registry):
    """Functions from method to method.

    One that is applied twice with the same values is applied once; with other values it is refused.
    """

    def register(self, function: Callable[P, R]) -> Callable[P, R]:
        """Add a wrapper whose first argument is the method (a decorator)."""

        def once(algorithm: Algorithm, **arguments: Any) -> Any:
            from fedquilt.core.algorithm import applied_once

            return applied_once(algorithm, function, arguments)

        return self._register(function, once)


methods = Registry("method", "fedquilt.methods")
simulations = Registry("simulation", "fedquilt.simulate")
wrappers = Wrappers("wrapper", "fedquilt.methods")
models = Registry("model", "fedquilt.models")
datasets = Registry("data set", "fedquilt.data")
partitions = Registry("partition", "fedquilt.partition")
engines = Registry("engine", "fedquilt.engines")
losses = Registry("loss", "fedquilt.parts.losses")
metrics = Registry("metric", "fedquilt.parts.metrics")
