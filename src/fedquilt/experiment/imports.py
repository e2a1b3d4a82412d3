"""Finds the user's own functions by import path: only here can a spec make fedquilt run other code."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal

from fedquilt.base.errors import RunError, SpecError, nearest, reason_of
from fedquilt.base.text import visible

Treatment = Literal["import", "refuse", "leave"]
"""What is done with code that a spec names."""

_CODE: ContextVar[Treatment] = ContextVar("_CODE", default="import")


@contextmanager
def _treated(how: Treatment) -> Iterator[None]:
    before = _CODE.set(how)
    try:
        yield
    finally:
        _CODE.reset(before)


@contextmanager
def no_import() -> Iterator[None]:
    """Refuse, for as long as the context lasts, specs and run folders that name code to import.

    A name with a colon in a spec ("module:function") is imported, and importing runs code. Within this context only
    what fedquilt itself has can be named, so that a spec or a run folder from somebody else runs nothing of theirs.

    >>> import fedquilt
    >>> with fedquilt.no_import():
    ...     imported("math:sqrt", None, "[model] name")
    Traceback (most recent call last):
    fedquilt.base.errors.SpecError: [model] name: 'math:sqrt' would import code, which --no-import refuses; ...
    """
    with _treated("refuse"):
        yield


@contextmanager
def unimported() -> Iterator[None]:
    """Import no code that specs name, for as long as the context lasts, but accept its names: to read results.

    What a run folder holds can then be shown, whoever made it. Code that is called after all is an error.

    >>> with unimported():
    ...     net = imported("their_code:Net", None, "[model] name")
    >>> net()
    Traceback (most recent call last):
    fedquilt.base.errors.RunError: needs the code 'their_code:Net', which is not imported to show results; ...
    """
    with _treated("leave"):
        yield


def importing_refused() -> bool:
    """Say whether code that a spec names is refused here; a process that is started has to be told.

    >>> with no_import():
    ...     importing_refused()
    True
    """
    return _CODE.get() == "refuse"


def imported(path: str, folder: Path | None, where: str) -> Callable[..., Any]:
    """Return what an import path such as "my_models:Net" names, looking into `folder` first.

    >>> imported("math:sqrt", None, "spec")(9.0)
    3.0
    """
    shown = visible(path, 80)
    if _CODE.get() == "leave":
        return _not_imported(path)
    if _CODE.get() == "refuse":
        raise SpecError(
            f"{where}: '{shown}' would import code, which --no-import refuses; read that code, then run without it"
        )
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute or module_name.endswith(".py"):
        right = f"{module_name.removesuffix('.py') or 'my_module'}:{attribute or 'my_function'}"
        raise SpecError(f"{where}: '{shown}' is not an import path; write it like '{visible(right, 80)}'")
    if folder is not None and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        looked = f" (looked in {folder} and the installed packages)" if folder is not None else ""
        why = visible(str(error), 200)
        raise SpecError(f"{where}: cannot import '{visible(module_name, 80)}'{looked}: {why}") from None
    except (Exception, SystemExit) as error:
        raise SpecError(f"{where}: importing '{visible(module_name, 80)}' failed: {reason_of(error)}") from error
    found = getattr(module, attribute, None)
    if found is None:
        defined = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module_name]
        names = [name for name in defined if callable(getattr(module, name)) and not name.startswith("_")]
        known = nearest(attribute, names) if names else "it defines no function or class"
        raise SpecError(f"{where}: '{visible(module_name, 80)}' has no '{visible(attribute, 80)}'; {known}")
    if not callable(found):
        raise SpecError(f"{where}: '{shown}' is not a function or class")
    return found  # type: ignore[no-any-return]


def _not_imported(path: str) -> Callable[..., Any]:
    """Return a function with the name of one that is not imported, which takes any arguments and refuses to be called."""

    def refuse(**arguments: object) -> None:
        raise RunError(
            f"needs the code '{visible(path, 80)}', which is not imported to show results; `fedquilt sweep` imports it"
        )

    refuse.__name__ = path  # no registered name has a colon
    return refuse
