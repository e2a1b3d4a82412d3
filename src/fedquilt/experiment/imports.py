"""Finds the user's own functions by import path."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedquilt.errors import SpecError, nearest


def imported(path: str, folder: Path | None, where: str) -> Callable[..., Any]:
    """Return what an import path such as "my_models:Net" names, looking into `folder` first.

    >>> imported("math:sqrt", None, "spec")(9.0)
    3.0
    """
    module_name, _, attribute = path.partition(":")
    if folder is not None and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        looked = f" (looked in {folder} and the installed packages)" if folder is not None else ""
        raise SpecError(f"{where}: cannot import '{module_name}'{looked}: {error}") from None
    except Exception as error:
        raise SpecError(f"{where}: importing '{module_name}' failed: {type(error).__name__}: {error}") from error
    found = getattr(module, attribute, None)
    if found is None:
        names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise SpecError(f"{where}: '{module_name}' has no '{attribute}'; {nearest(attribute, names)}")
    if not callable(found):
        raise SpecError(f"{where}: '{path}' is not a function or class")
    return found  # type: ignore[no-any-return]
