"""Writes the stubs from which type checkers and editors know the public names, or says which are stale.

    python tools/stubs.py --write
    python tools/stubs.py --check

The names are those that the namespaces find at run time (`fedquilt.base.namespace`): nothing is said twice by hand.
"""

from __future__ import annotations

import sys
from pathlib import Path

import generated

import fedquilt.data
from fedquilt.base.namespace import Namespace

WIDTH = 120


def stubs() -> dict[Path, str]:
    """Return the text of every stub, by its path."""
    found = [fedquilt, *(getattr(fedquilt, name) for name in fedquilt._within), fedquilt.data]
    return {Path(str(each.__file__)).with_suffix(".pyi"): stub(each) for each in found}


def stub(module: Namespace) -> str:
    """Return the stub of a namespace."""
    homes: dict[str, list[str]] = {}
    for name in module.names():
        homes.setdefault(str(module.home(name)), []).append(name)
    lines = ["# Written by tools/stubs.py: do not edit.", ""]
    lines += [f"from {module.__name__} import {name} as {name}" for name in module._within]
    lines += [imported(home, names) for home, names in sorted(homes.items())]
    if "__version__" in vars(module):
        lines += ["", "__version__: str"]
    return "\n".join([*lines, "", "__all__ = [", *(f'    "{name}",' for name in module.names()), "]", ""])


def imported(home: str, names: list[str]) -> str:
    """Return the line, or lines, that import names from a module."""
    line = f"from {home} import {', '.join(names)}"
    return (
        line if len(line) <= WIDTH else "\n".join([f"from {home} import (", *(f"    {name}," for name in names), ")"])
    )


if __name__ == "__main__":
    sys.exit(generated.main(__doc__, stubs()))
