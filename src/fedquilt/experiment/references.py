"""What a function refers to besides its arguments: global values, what it takes from modules, and what it imports itself.

Read from its bytecode, in the order in which it stands there. What a name is made of at run time, as by `getattr` with a
computed name, cannot be seen.
"""

from __future__ import annotations

import dis
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from fedquilt.base.errors import installed

_LOADS = ("LOAD_GLOBAL", "LOAD_NAME")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_MISSING = object()


def references(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield what a function refers to, by name: of modules of the user's own, what it takes from them.

    Global names that the function itself sets are left out: those are no constants.

    >>> def area(r): return math.pi * r * SCALE
    >>> area.__globals__["SCALE"] = [2.0]
    >>> list(references(area))
    [('SCALE', [2.0])]
    """
    for code in _codes(function.__code__):
        yield from _of_code(code, function.__globals__)


def is_own_module(value: object) -> bool:
    """Say whether a value is a module of the user's own: not of Python, fedquilt or an installed package."""
    if not isinstance(value, ModuleType):
        return False
    files = [
        getattr(value, "__file__", None),
        *getattr(value, "__path__", ()),
    ]  # a folder without __init__.py has no file
    return any(file is not None and not installed(str(file)) for file in files)


def members(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield what a module holds, but for what Python itself puts there."""
    return ((name, value) for name, value in list(vars(module).items()) if not name.startswith("__"))


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code and that of functions and classes inside of it."""
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _codes(part)


def _of_code(code: CodeType, names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    steps = list(dis.get_instructions(code))
    set_here = {step.argval for step in steps if step.opname == "STORE_GLOBAL"}
    for index, step in enumerate(steps):
        if step.opname in _LOADS and step.argval in names and step.argval not in set_here:
            yield from _taken(step.argval, names[step.argval], steps[index + 1 :])
        elif step.opname == "IMPORT_NAME":
            level, wanted = steps[index - 2].argval, steps[index - 1].argval
            yield from _imported("." * level + step.argval, wanted or (), names)


def _taken(name: str, value: Any, after: list[dis.Instruction]) -> Iterator[tuple[str, Any]]:
    """Follow attributes as long as they are those of the user's own modules: `package.module.function`."""
    for step in after:
        if not is_own_module(value) or step.opname not in _ATTRIBUTES:
            break
        found = getattr(value, step.argval, _MISSING)
        if found is _MISSING:
            break
        name, value = f"{name}.{step.argval}", found
    if is_own_module(value) or not isinstance(value, ModuleType):
        yield name, value


def _imported(name: str, wanted: tuple[str, ...], names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what an `import` inside of a function brings, if it is the user's own.

    It is imported here, as the function would do: what is found must not depend on whether it has run before.
    """
    try:
        full = importlib.util.resolve_name(name, names.get("__package__") or "")
        if not _can_be_own(full.partition(".")[0]):
            return
        module = importlib.import_module(full)
    except Exception as error:  # a function may well try an import that fails
        yield name, f"cannot be imported: {type(error).__name__}"
        return
    if not is_own_module(module):
        return
    if not wanted:
        yield full, module
    for each in wanted:
        yield f"{full}.{each}", _member(module, each)


def _member(module: ModuleType, name: str) -> Any:
    """Return what `from module import name` brings: an attribute, or else a module inside of it."""
    value = getattr(module, name, _MISSING)
    if value is _MISSING:
        try:
            return importlib.import_module(f"{module.__name__}.{name}")
        except Exception as error:
            return f"cannot be imported: {type(error).__name__}"
    return value


def _can_be_own(top: str) -> bool:
    """Say whether a package of that name is the user's own, without importing it if it is another's."""
    if top in sys.modules:
        return is_own_module(sys.modules[top])
    spec = importlib.util.find_spec(top)
    if spec is None:
        return False
    paths = [spec.origin] if spec.origin is not None else list(spec.submodule_search_locations or ())
    return any(Path(path).exists() and not installed(path) for path in paths)
