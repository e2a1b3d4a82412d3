"""A user's own code as text: what tells a run from one of an edited method or model.

Functions and classes of the user's own are written by their source, and so are those that they name; objects by their class
and what they hold. What comes with fedquilt, Python or an installed package goes by its name. An attribute `version` of a
function, a class or an object stands for all of it.
"""

from __future__ import annotations

import dis
import hashlib
import inspect
import textwrap
import weakref
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedquilt.base.describe import describe
from fedquilt.base.errors import RunError, installed

_OF_TORCH = (torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format)
_PLAIN = (type(None), bool, int, float, complex, str, bytes, PurePath, Enum, range, slice, np.generic, *_OF_TORCH)
_CONTAINERS = (tuple, list, dict, set, frozenset)
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
    return "\n".join(_Walk().lines(values))


class _Walk:
    """Writes values one after the other, each once."""

    def __init__(self) -> None:
        self._seen: dict[int, object] = {}

    def lines(self, parts: Any) -> Iterator[str]:
        for part in parts:
            yield from self._written(part)

    def _written(self, value: Any) -> Iterator[str]:
        if isinstance(value, _PLAIN):
            yield repr(value)
        elif isinstance(value, _CONTAINERS):
            yield from self._container(value)
        elif id(value) not in self._seen:
            self._seen[id(value)] = value  # held, so that its identity is not given to another
            yield from self._opened(value)

    def _container(self, value: Any) -> Iterator[str]:
        yield f"{type(value).__name__} of {len(value)}"
        if isinstance(value, dict):
            yield from self.lines(part for item in value.items() for part in item)
        else:
            yield from self.lines(value if isinstance(value, tuple | list) else sorted(value, key=describe))

    def _opened(self, value: Any) -> Iterator[str]:
        version = _version(value)
        if version is not None:
            yield version
        elif isinstance(value, FunctionType):
            yield from self._function(value)
        elif isinstance(value, type):
            yield from self._class(value)
        elif isinstance(value, Tensor | np.ndarray):
            yield _digest(value)
        elif isinstance(value, nn.Module):
            yield from self._module(value)
        elif isinstance(value, partial):
            yield from self.lines((value.func, value.args, sorted(value.keywords.items())))
        elif isinstance(value, MethodType):
            yield from self.lines((value.__func__, value.__self__))
        elif isinstance(value, BuiltinFunctionType | ModuleType) or hasattr(value, "__wrapped__"):
            yield _name(value)
            yield from self.lines([getattr(value, "__wrapped__", None)])
        elif not isinstance(value, weakref.ref):
            yield from self._object(value)

    def _function(self, function: FunctionType) -> Iterator[str]:
        yield _name(function)
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        if _is_own(function.__code__.co_filename):
            yield _source(function)
            yield from self._named_by(function)
        yield from self.lines((cells, function.__defaults__, function.__kwdefaults__))

    def _class(self, kind: type) -> Iterator[str]:
        yield _name(kind)
        if not _is_own_class(kind):
            return
        yield _source(kind)
        yield from self.lines(kind.__bases__)
        for member in vars(kind).values():
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if isinstance(function, FunctionType):
                yield from self._named_by(function)

    def _named_by(self, function: FunctionType) -> Iterator[str]:
        """Write the code and the constants that a function of the user's own names, of its module and of others."""
        names = _names(function.__code__)
        for name in names:
            value = function.__globals__.get(name)
            inside = isinstance(value, ModuleType) and _is_own(getattr(value, "__file__", None) or "")
            for part in [vars(value)[key] for key in names if key in vars(value)] if inside else [value]:
                code = isinstance(part, FunctionType) and _is_own(part.__code__.co_filename)
                if code or (isinstance(part, type) and _is_own_class(part)) or isinstance(part, int | float | str):
                    yield from self._written(part)

    def _module(self, module: nn.Module) -> Iterator[str]:
        yield from self.lines([type(module)])
        if _is_library(type(module)):
            yield module.extra_repr()
        else:
            yield from self._held({key: each for key, each in vars(module).items() if key not in _INTERNAL})
        yield from self._held(dict(module.named_children()))

    def _object(self, value: object) -> Iterator[str]:
        yield from self.lines([type(value)])
        if is_dataclass(value):
            yield from self._held({field.name: getattr(value, field.name) for field in fields(value)})
        elif _is_of_fedquilt(type(value)) and type(value).__repr__ is not object.__repr__:
            yield repr(value)  # which says what decides results, such as which images there are and not where they lie
        elif hasattr(value, "__dict__") and not _is_library(type(value)):
            yield from self._held(vars(value))
        elif type(value).__repr__ is object.__repr__ or " at 0x" in repr(value):
            raise RunError(
                f"an argument of this run holds an object of {_name(type(value))}, whose content cannot be recorded, so "
                f"that a resumed run could not be compared with it. {_ADVICE.capitalize()}, or train without a folder"
            )
        else:
            yield repr(value)

    def _held(self, named: dict[str, Any]) -> Iterator[str]:
        for key, each in named.items():
            if not isinstance(each, nn.Parameter):
                yield f"{key}:"
                yield from self._written(each)


def _version(value: Any) -> str | None:
    """Return the version that a function, class or object of the user's own gives itself."""
    named = value if isinstance(value, FunctionType | type) else type(value)
    if isinstance(named, type) and not _is_own_class(named):
        return None
    version = getattr(value, "version", None)
    return f"{_name(named)} version {version!r}" if isinstance(version, str | int | float) else None


def _source(code: FunctionType | type) -> str:
    try:
        return textwrap.dedent(inspect.getsource(code))
    except (OSError, TypeError):
        raise RunError(
            f"the source of {_name(code)} cannot be read, so that a resumed run could not be compared with it: "
            f"put it into a file, or {_ADVICE}, or train without a folder"
        ) from None


def _names(code: CodeType) -> list[str]:
    """Return the global names that a function, and functions inside of it, read and do not set: those are no constants."""
    inner = [name for part in code.co_consts if isinstance(part, CodeType) for name in _names(part)]
    set_here = {each.argval for each in dis.get_instructions(code) if each.opname == "STORE_GLOBAL"}
    return sorted({*code.co_names, *inner} - set_here)


def _digest(values: Tensor | np.ndarray[Any, Any]) -> str:
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
    return f"{array.dtype} {array.shape} {hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()}"


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"


def _is_own(file: str) -> bool:
    return not installed(file)


def _is_own_class(kind: type) -> bool:
    return kind.__module__ != "builtins" and _is_own(_file(kind))


def _is_library(kind: type) -> bool:
    """Whether a class comes with Python or an installed package, but not with fedquilt."""
    return not _is_own_class(kind) and not _is_of_fedquilt(kind)


def _is_of_fedquilt(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "fedquilt"


def _file(kind: type) -> str:
    module = inspect.getmodule(kind)
    if module is not None and getattr(module, "__file__", None) is None and module.__name__ != "__main__":
        return "<frozen"  # built in
    return getattr(module, "__file__", None) or "<unknown>"
