"""Named functions that a spec may call: methods, models, data sets, partitions, engines, losses and metrics.

What there is to name is found by reading the source files of a package, without running them: `fedquilt list` and a
misspelt name are answered before PyTorch is imported. A file is imported when one of its functions is first used.

A registered function's arguments are checked against its annotations on every call, from a spec or from Python, so that
a wrong value is refused in the same words everywhere.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from fedquilt.base.errors import nearest
from fedquilt.base.text import visible

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class RegisteredFunction:
    """A registered function as its source file says: where it is, the first line of its docstring, its parameters.

    `open` functions also take keyword arguments that they do not name.
    """

    module: str
    summary: str
    parameters: tuple[str, ...]
    open: bool = False


class Registry:
    """Functions of one kind, by name.

    >>> shapes = Registry("shape")
    >>> @shapes.register
    ... def square(side: float) -> float:
    ...     '''The area of a square.'''
    ...     return side * side
    >>> shapes["square"](side=3.0), shapes.summary("square"), shapes.parameters("square"), list(shapes)
    (9.0, 'The area of a square.', ('side',), ['square'])
    """

    def __init__(self, kind: str, home: str | None = None, decorator: str = "", where: str = "") -> None:
        """Make a registry; `kind` is the word used in messages, `where` is where a spec names its functions.

        `home` is the package, or the module, whose functions marked `@<decorator>.register` belong to it.
        """
        self.kind = kind
        self.where = where
        self._home = home
        self._decorator = decorator
        self._functions: dict[str, Callable[..., object]] = {}

    def register(self, function: Callable[P, R]) -> Callable[P, R]:
        """Add a function under its own name, and check its arguments on every call (a decorator)."""
        return self._register(function, function)

    def _register(self, function: Callable[P, R], called: Callable[..., R]) -> Callable[P, R]:
        """Add a function; `called` is what is called in its place, with its arguments by name."""

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            from fedquilt.base.arguments import check  # pydantic takes a while to import

            names = list(inspect.signature(function).parameters)
            if len(args) > len(names):
                raise TypeError(f"{function.__name__} takes at most {len(names)} arguments, got {len(args)}")
            return called(**check(function, {**dict(zip(names, args, strict=False)), **kwargs}))

        self._functions[function.__name__] = checked
        return checked

    @property
    def plural(self) -> str:
        """Its name in this module, in the decorator `@<plural>.register`, and in `fedquilt list`."""
        return self._decorator

    def home(self, name: str) -> str:
        """Return the module that defines the function.

        >>> methods.home("fed_avg")
        'fedquilt.methods.fed_avg'
        """
        return self._entry(name).module

    def _entries(self) -> dict[str, RegisteredFunction]:
        return {} if self._home is None else _found(self._home).get(self._decorator, {})

    def __getitem__(self, name: str) -> Callable[..., object]:
        if name not in self._functions and name in self._entries():
            importlib.import_module(self._entries()[name].module)
        return self._functions[name]

    def __contains__(self, name: object) -> bool:
        return name in self._functions or name in self._entries()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._functions, *self._entries()}))

    def unknown(self, name: str) -> str:
        """Say that there is none of that name, and which there are.

        >>> methods.unknown("fed_agv").partition(" (")[0]
        "no method is called 'fed_agv'; did you mean 'fed_avg'?"
        """
        alternative = 'or the import path of your own, "module:function"'
        return f"no {self.kind} is called '{visible(name, 80)}'; {nearest(name, self)}; {alternative}"

    def summary(self, name: str) -> str:
        """Return the first line of the function's documentation."""
        return self._entry(name).summary

    def parameters(self, name: str) -> tuple[str, ...] | None:
        """Return the names of the function's parameters, or None if it takes others besides."""
        entry = self._entry(name)
        return None if entry.open else entry.parameters

    def _entry(self, name: str) -> RegisteredFunction:
        found = self._entries().get(name)
        return _entry(self._functions[name]) if found is None else found


def _entry(function: Callable[..., object]) -> RegisteredFunction:
    """Describe a function that was registered from elsewhere."""
    every = inspect.signature(function).parameters.values()
    named = tuple(each.name for each in every if each.kind is not inspect.Parameter.VAR_KEYWORD)
    summary = (inspect.getdoc(function) or "").split("\n", 1)[0]
    return RegisteredFunction(function.__module__, summary, named, len(named) < len(every))


@functools.cache
def _found(home: str) -> dict[str, dict[str, RegisteredFunction]]:
    """Read the files of a package, or one module: what is registered there, by decorator and name."""
    found: dict[str, dict[str, RegisteredFunction]] = {}
    for module, source in sources(home, ".register\n"):
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef):
                for decorator in node.decorator_list:
                    match decorator:
                        case ast.Attribute(ast.Name(kind), "register"):
                            found.setdefault(kind, {})[node.name] = _read(module, node)
    return found


def sources(home: str, containing: str) -> Iterator[tuple[str, str]]:
    """Yield the modules of a package, or one module, whose source contains a text, with their source."""
    root = Path(__file__).parent.parent
    folder = root.joinpath(*home.split(".")[1:])
    for file in sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]:
        source = file.read_text(encoding="utf-8")
        if containing in source:
            yield ".".join([root.name, *file.relative_to(root).with_suffix("").parts]), source


def _read(module: str, node: ast.FunctionDef) -> RegisteredFunction:
    given = node.args
    named = tuple(each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs))
    return RegisteredFunction(module, (ast.get_docstring(node) or "").split("\n", 1)[0], named, given.kwarg is not None)


class Wrappers(Registry):
    """Functions from method to method.

    One that is applied twice with the same values is applied once; with other values it is refused.
    """

    def register(self, function: Callable[P, R]) -> Callable[P, R]:
        """Add a wrapper whose first argument is the method (a decorator)."""

        def once(algorithm: Any, **arguments: Any) -> Any:
            from fedquilt.base.records import applied_once

            return applied_once(algorithm, function, arguments)

        return self._register(function, once)


methods = Registry("method", "fedquilt.methods", "methods", "[method]")
wrappers = Wrappers("wrapper", "fedquilt.methods", "wrappers", "[[wrap]]")
simulations = Registry("simulation", "fedquilt.simulate", "simulations", "[[simulate]]")
models = Registry("model", "fedquilt.models", "models", "[model]")
datasets = Registry("data set", "fedquilt.data.sets", "datasets", "[data]")
partitions = Registry("partition", "fedquilt.partition", "partitions", "[partition]")
engines = Registry("engine", "fedquilt.engines", "engines", "[engine]")
losses = Registry("loss", "fedquilt.algorithm.parts", "losses", "[run] loss")
metrics = Registry("metric", "fedquilt.algorithm.parts", "metrics", "[run] metrics")
trackers = Registry("tracker", "fedquilt.experiment.tracking", "trackers", "[run] track")

_EVERY = (methods, wrappers, simulations, models, datasets, partitions, engines, losses, metrics, trackers)
KINDS = {each.plural: each for each in _EVERY}
"""Every kind of thing that a spec can name."""
