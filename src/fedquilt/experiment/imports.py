"""Finds the user's own functions by import path."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedquilt.errors import SpecError, nearest, told


def imported(path: str, folder: Path | None, where: str) -> Callable[..., Any]:
    """Return what an import path such as "my_models:Net" names, looking into `folder` first.

    >>> imported("math:sqrt", None, "spec")(9.0)
    3.0
    """
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute or module_name.endswith(".py"):
        right = f"{module_name.removesuffix('.py') or 'my_module'}:{attribute or 'my_function'}"
        raise SpecError(f"{where}: '{path}' is not an import path; write it like '{right}'")
    if folder is not None and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        looked = f" (looked in {folder} and the installed packages)" if folder is not None else ""
        raise SpecError(f"{where}: cannot import '{module_name}'{looked}: {error}") from None
    except Exception as error:
        raise SpecError(f"{where}: importing '{module_name}' failed: {told(error)}") from error
    found = getattr(module, attribute, None)
    if found is None:
        own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module_name]
        names = [name for name in own if callable(getattr(module, name)) and not name.startswith("_")]
        known = nearest(attribute, names) if names else "it defines no function or class"
        raise SpecError(f"{where}: '{module_name}' has no '{attribute}'; {known}")
    if not callable(found):
        raise SpecError(f"{where}: '{path}' is not a function or class")
    return found  # type: ignore[no-any-return]
