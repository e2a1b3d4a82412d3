"""A user's own code as text: what tells a run from one of an edited method or model.

Functions and classes of the user's own are written by their source, and so is everything that they refer to: other code,
and values of whatever kind. Objects are written by their class and what they hold. What comes with fedquilt, Python or an
installed package goes by its name. An attribute `version` of a function, a class or an object stands for all of it.

What cannot be written is refused: nothing that the user's code refers to is left out.
"""

from __future__ import annotations

import hashlib
import inspect
import textwrap
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cached_property, lru_cache, partial
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedquilt.base.errors import RunError, installed
from fedquilt.experiment.references import is_own_module, members, references

_OF_TORCH = (torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format)
_PLAIN = (type(None), bool, int, float, complex, str, bytes, PurePath, range, slice, np.generic, *_OF_TORCH)
_CONTAINERS = (tuple, list, dict, set, frozenset)
_DESCRIPTORS = (GetSetDescriptorType, MemberDescriptorType)
_INTERNAL = frozenset(vars(nn.Module()))
"""What every module has: its parameters are the model's, and are compared as such."""

_ADVICE = "give it an attribute `version`, a string or a number that you change whenever its result changes"


def own_code(*values: object) -> str:
    """Return the code and the values that some values hold, in a text that is the same in every process.

    What cannot be written so is refused.

    >>> def double(x): return 2 * x
    >>> double.version = 3
    >>> own_code(double).endswith("double version 3")
    True
    """
    return "\n".join(_Walk().all_of(values))


class _Walk:
    """Writes values one after the other, each once: where one comes up again, its number stands for it.

    What functions refer to waits until the rest is written, so that a long chain of functions is no deep recursion.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, object]] = {}
        self._open: set[int] = set()
        self._waiting: deque[tuple[str, str, Any]] = deque()
        self._where = ""
        self._forgiving = False

    def all_of(self, values: Iterable[Any]) -> Iterator[str]:
        yield from self.lines(values)
        while self._waiting:
            who, name, value = self._waiting.popleft()
            self._where = f", which {who} refers to as {name}"
            yield f"{name}:"
            yield from self._written(value)

    def lines(self, parts: Iterable[Any]) -> Iterator[str]:
        for part in parts:
            yield from self._written(part)

    def _written(self, value: Any) -> Iterator[str]:
        if isinstance(value, _PLAIN):
            yield repr(value)
            yield from self.lines([type(value)] if _is_own_class(type(value)) else ())
        elif isinstance(value, _CONTAINERS):
            yield from self._container(value)
        elif id(value) in self._seen:
            yield f"number {self._seen[id(value)][0]}"
        else:
            # The value itself is held, so that its identity is not given to another.
            self._seen[id(value)] = (len(self._seen), value)
            yield from self._opened(value)

    def _container(self, value: Any) -> Iterator[str]:
        # Equal containers may or may not be one and the same, as Python likes: each is written, but not inside of itself.
        if id(value) in self._open:
            yield "a container that holds this"
            return
        self._open.add(id(value))
        yield f"{type(value).__name__} of {len(value)}"
        if type(value) not in _CONTAINERS:
            yield from self.lines([type(value)])
        if isinstance(value, dict):
            yield from self.lines(part for item in value.items() for part in item)
        else:
            yield from self.lines(value if isinstance(value, tuple | list) else sorted(value, key=own_code))
        self._open.remove(id(value))

    def _opened(self, value: Any) -> Iterator[str]:
        version = _version(value)
        if version is not None:
            yield version
        elif isinstance(value, FunctionType):
            yield from self._function(value)
        elif isinstance(value, type):
            yield from self._class(value)
        elif isinstance(value, Enum):
            yield from (value.name, *self.lines([type(value)]))
        elif isinstance(value, Tensor | np.ndarray):
            yield from self._array(value)
        elif isinstance(value, nn.Module):
            yield from self._module(value)
        elif isinstance(value, partial):
            yield from self.lines((value.func, value.args, sorted(value.keywords.items())))
        elif isinstance(value, MethodType):
            yield from self.lines((value.__func__, value.__self__))
        elif is_own_module(value):
            yield _name(value)
            self._refer(value.__name__, members(value))
        elif isinstance(value, BuiltinFunctionType | ModuleType) or hasattr(value, "__wrapped__"):
            yield _name(value)
            yield from self.lines([getattr(value, "__wrapped__", None)])
        elif not isinstance(value, weakref.ref):
            yield from self._object(value)

    def _refer(self, who: str, named: Iterable[tuple[str, Any]]) -> None:
        self._waiting.extend((who, name, value) for name, value in named)

    def _function(self, function: FunctionType) -> Iterator[str]:
        yield _name(function)
        own = _is_own(function.__code__.co_filename)
        if own:
            yield _source(function)
            self._refer(_name(function), references(function))
        # What a decorator of an installed package holds besides the function is its own affair.
        with self._forgiving_if(not own and not _is_of_fedquilt(function)):
            yield from self.lines((_closed_over(function), function.__defaults__, function.__kwdefaults__))
            yield from self._held(vars(function))

    def _class(self, kind: type) -> Iterator[str]:
        yield _name(kind)
        if not _is_own_class(kind):
            return
        with self._forgiving_if(False):
            yield _source(kind)
            yield from self.lines((*kind.__bases__, type(kind)))
            if is_dataclass(kind):
                yield from self.lines(f.default_factory for f in fields(kind) if f.default_factory is not MISSING)
            for name, member in vars(kind).items():
                yield from self._member(name, member)

    def _member(self, name: str, member: Any) -> Iterator[str]:
        """Write what a class has under a name: its source does not say what a global value in it stood for."""
        parts = [getattr(member, part, None) for part in ("fget", "fset", "fdel")]
        if isinstance(member, property):
            functions = [part for part in parts if part is not None]
        else:
            functions = [getattr(member, "func" if isinstance(member, cached_property) else "__func__", member)]
        for function in functions:
            if isinstance(function, FunctionType) and not _is_written(function):
                yield from self.lines((function.__defaults__, function.__kwdefaults__))
            elif isinstance(function, FunctionType) or not (name.startswith("__") or _is_bookkeeping(name, function)):
                yield f"{name}:"
                yield from self._written(function)

    def _array(self, array: Tensor | np.ndarray[Any, Any]) -> Iterator[str]:
        yield from self.lines([type(array)] if _is_own_class(type(array)) else ())
        if isinstance(array, np.ndarray) and array.dtype.hasobject:
            yield from self.lines([array.shape, array.tolist()])
        else:
            yield _digest(array)

    def _module(self, module: nn.Module) -> Iterator[str]:
        yield from self.lines([type(module)])
        if _is_library(type(module)):
            yield module.extra_repr()
        else:
            yield from self._held({key: each for key, each in vars(module).items() if key not in _INTERNAL})
        yield from self._held(dict(module.named_children()))

    def _object(self, value: Any) -> Iterator[str]:
        kind = type(value)
        yield from self.lines([kind])
        if _is_own_class(kind):
            with self._forgiving_if(False):
                yield from self._held(_attributes(value))
        elif _is_of_fedquilt(kind) and is_dataclass(value):
            yield from self._held({field.name: getattr(value, field.name) for field in fields(value)})
        elif _is_of_fedquilt(kind) and _says_itself(value):
            yield repr(value)  # which says what decides results, such as which images there are and not where they lie
        elif _is_of_fedquilt(kind) and hasattr(value, "__dict__"):
            yield from self._held(vars(value))
        elif hasattr(value, "__qualname__"):
            yield _name(value)
        else:
            yield from self._of_library(value)

    def _of_library(self, value: Any) -> Iterator[str]:
        """Write an object of an installed package by what pickle would write, or else by its text."""
        try:
            # An iterator is used up as it is used: there is no saying what it holds.
            parts = None if isinstance(value, Iterator) else value.__reduce_ex__(4)
        except Exception:  # it cannot be pickled, for whatever reason
            parts = None
        if parts is not None:
            listed = [part if index < 3 else list(part or ()) for index, part in enumerate(parts[:5])]
            with self._forgiving_if(True):
                yield from self.lines([parts] if isinstance(parts, str) else listed)
        elif _says_itself(value) and " at 0x" not in repr(value):
            yield repr(value)
        elif not self._forgiving:
            raise RunError(
                f"what this run starts from holds an object of {_name(type(value))}{self._where}, whose content cannot be "
                f"recorded, so that a resumed run could not be compared with it. {_ADVICE.capitalize()}, or to what "
                "holds it, or train without a folder"
            )

    def _held(self, named: dict[str, Any]) -> Iterator[str]:
        for key, each in named.items():
            if not isinstance(each, nn.Parameter):
                yield f"{key}:"
                yield from self._written(each)

    @contextmanager
    def _forgiving_if(self, library: bool) -> Iterator[None]:
        """Pass over what cannot be written, where it is held by an installed package and not by the user's own code."""
        before, self._forgiving = self._forgiving, library
        yield
        self._forgiving = before


def _says_itself(value: object) -> bool:
    """Say whether an object's text is more than its address."""
    described: Any = type(value).__repr__
    return described is not object.__repr__


def _attributes(value: Any) -> dict[str, Any]:
    """Return what an object of the user's own holds, but for what it works out by itself and remembers."""
    slots = [name for kind in type(value).__mro__ for name in _slots(kind)]
    held = {name: getattr(value, name) for name in slots if hasattr(value, name)} | getattr(value, "__dict__", {})
    return {
        name: each
        for name, each in held.items()
        if not isinstance(inspect.getattr_static(type(value), name, None), cached_property)
    }


def _slots(kind: type) -> Iterable[str]:
    slots = vars(kind).get("__slots__", ())
    return [name for name in ([slots] if isinstance(slots, str) else slots) if not name.startswith("__")]


def _closed_over(function: FunctionType) -> list[Any]:
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # it is not filled yet
            found.append(None)
    return found


def _is_written(function: FunctionType) -> bool:
    """Say whether a method stands in a file, and was not made up as those of a dataclass are."""
    innermost: Any = inspect.unwrap(function)
    return not innermost.__code__.co_filename.startswith("<") or function.__module__ == "__main__"


def _is_bookkeeping(name: str, member: object) -> bool:
    """Say whether Python put this into a class for itself."""
    return name == "_abc_impl" or isinstance(member, _DESCRIPTORS)


def _version(value: Any) -> str | None:
    """Return the version that a function, class or object of the user's own gives itself."""
    named = value if isinstance(value, FunctionType | type) else type(value)
    if isinstance(named, type) and not _is_own_class(named):
        return None
    version = getattr(value, "version", None)
    return f"{_name(named)} version {version!r}" if isinstance(version, str | int | float) else None


def _source(code: FunctionType | type) -> str:
    try:
        # Of a function, its own: `inspect` would give that of the function which it wraps.
        return textwrap.dedent(inspect.getsource(code.__code__ if isinstance(code, FunctionType) else code))
    except (OSError, TypeError):
        raise RunError(
            f"the source of {_name(code)} cannot be read, so that a resumed run could not be compared with it: "
            f"put it into a file, or {_ADVICE}, or train without a folder"
        ) from None


def _digest(values: Tensor | np.ndarray[Any, Any]) -> str:
    if isinstance(values, Tensor):
        dense = values.detach().cpu().to_dense().resolve_conj().resolve_neg().contiguous()
        content = dense.view(-1).view(torch.uint8).numpy().tobytes() if dense.numel() else b""
    else:
        content = np.ascontiguousarray(values).tobytes()
    return f"{values.dtype} {tuple(values.shape)} {hashlib.sha256(content).hexdigest()}"


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"


def _is_own(file: str) -> bool:
    return not installed(file)


def _is_own_class(kind: type) -> bool:
    return kind.__module__ != "builtins" and _is_own(_file(kind))


def _is_library(kind: type) -> bool:
    """Whether a class comes with Python or an installed package, but not with fedquilt."""
    return not _is_own_class(kind) and not _is_of_fedquilt(kind)


def _is_of_fedquilt(code: type | FunctionType) -> bool:
    return (code.__module__ or "").partition(".")[0] == "fedquilt"


@lru_cache(maxsize=4096)
def _file(kind: type) -> str:
    module = inspect.getmodule(kind)
    if module is not None and getattr(module, "__file__", None) is None and module.__name__ != "__main__":
        return "<frozen"  # built in
    return getattr(module, "__file__", None) or "<unknown>"
