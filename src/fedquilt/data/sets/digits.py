"""scikit-learn's digits: 1,797 handwritten digits of 8×8 pixels. Nothing to download.

The test part of UCI's "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak 1998).
"""

from __future__ import annotations

import torch

from fedquilt.base.arguments import Seed
from fedquilt.base.registry import datasets
from fedquilt.data.data import Data, Split
from fedquilt.data.formats.packaged import read_table
from fedquilt.data.stratified import TestFraction, stratified


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
